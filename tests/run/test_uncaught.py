"""Tracebacks under a rehearsal are those that the program has without one."""

from __future__ import annotations

import re

import pytest

CASES = {
    "an operand in a module": """
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(3, 3)).to("mps")
        model(torch.ones(2, 3))
    """,
    "a movement to an absent device": """
        import torch
        torch.ones(2).to("cuda")
    """,
    "numpy": """
        import torch
        torch.ones(2, device="mps").numpy()
    """,
    "a thread": """
        import threading, torch
        x = torch.ones(2, device="mps")
        thread = threading.Thread(target=lambda: x + torch.ones(2))
        thread.start(); thread.join()
    """,
    "a cause": """
        import torch
        try:
            torch.ones(2, device="mps") + torch.ones(2)
        except RuntimeError as err:
            raise ValueError("bad batch") from err
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_traceback_shows_nothing_of_wherry(folder, script, name):
    script(CASES[name])

    done = folder.wherry("run", "--on", "mps", "--virtual", "--quiet", "program.py")

    files = re.findall(r'  File "(.+)", line', done.stderr)
    assert "program.py" in "".join(files)
    assert [file for file in files if "wherry" in file or "runpy" in file or "typer" in file] == []


@pytest.mark.slow
def test_a_traceback_that_the_program_prints_itself_does(folder, script):
    """The twin: there is something to take out. (And a limit, which docs/run.md names.)"""
    script("""
        import torch, traceback
        try:
            torch.ones(2, device="mps") + torch.ones(2)
        except RuntimeError:
            traceback.print_exc()
    """)

    done = folder.wherry("run", "--on", "mps", "--virtual", "--quiet", "program.py")

    assert "wherry" in done.stderr


@pytest.mark.slow
def test_functions_of_wherry_that_the_program_calls_stay(folder, script):
    script("""
        import wherry
        wherry.pick("nothing like that")
    """)

    done = folder.wherry("run", "--on", "cpu", "--quiet", "program.py")

    assert "pick.py" in done.stderr
    assert "wherry.errors.UnknownDevice: " in done.stderr
