"""What a person reads, as text."""

from __future__ import annotations

import io

from rich.console import Console

import wherry
from wherry.explain.text import plain, show

PROGRAM = """\
import torch
from torch import nn


class Ruler(nn.Module):
    def __init__(self):
        super().__init__()
        self.grid = torch.linspace(0, 1, 4)
        self.step = torch.ones(4)
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return self.lin(x) * self.grid + self.step


ruler = Ruler().to("cuda")
ruler(torch.ones(4, device="cuda"))
"""


def test_a_diagnosis_in_a_few_lines(fail, tmp_path) -> None:
    diagnosis = wherry.explain_exception(fail(PROGRAM))

    assert diagnosis is not None
    assert (
        str(diagnosis).replace(str(tmp_path), "")
        == """\
wherry: self.grid is on cpu, and should be on cuda:0
  failed at /program.py:13, in forward()
    13 | return self.lin(x) * self.grid + self.step
       |        -----------   ^^^^^^^^^
       |        cuda:0        cpu
  made at line 8, in __init__()
     8 | self.grid = torch.linspace(0, 1, 4)
  why  self.grid is a plain attribute of Ruler, neither a parameter nor a registered buffer, so
       ruler.to("cuda") (line 16) does not see it.
  fix  Register it: self.register_buffer("grid", torch.linspace(0, 1, 4))
  next self.step is there too, and would fail next."""
    )


def test_underlines_stand_below_wide_characters(fail) -> None:
    program = 'import torch\n温度 = torch.ones(2)\nprint("温度", torch.ones(2, device="cuda") * 温度)\n'

    diagnosis = wherry.explain_exception(fail(program))

    assert diagnosis is not None
    lines = plain(diagnosis).splitlines()
    code, marks = lines[2], lines[3]
    column = code.rindex("温度")
    # Two columns for each of the four wide characters before it and in it.
    assert marks.rstrip().endswith("^^^^")
    assert len(marks.rstrip()) - 4 == column + 2


def test_it_fits_a_narrow_terminal_and_has_no_colour_in_a_file(fail) -> None:
    diagnosis = wherry.explain_exception(fail(PROGRAM))
    assert diagnosis is not None
    stream = io.StringIO()

    show(diagnosis, Console(file=stream, width=60))

    prose = [line for line in stream.getvalue().splitlines() if line.startswith(("  why", "  fix", "       "))]
    assert len(prose) > 3
    assert max(map(len, prose)) <= 60
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_has_colour(fail) -> None:
    diagnosis = wherry.explain_exception(fail(PROGRAM))
    assert diagnosis is not None
    stream = io.StringIO()

    show(diagnosis, Console(file=stream, width=100, force_terminal=True, color_system="standard"))

    assert "\x1b[1;31mself.grid" in stream.getvalue()
