"""The README is true: its files are written, its commands are run, and what they print is what it shows.

Numbers may differ (times, bytes, versions), and a line "..." stands for anything. All else is compared line by line.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


@dataclass(frozen=True)
class Step:
    """A command and the output shown below it."""

    command: str
    shown: list[str]


def files(text: str) -> dict[str, str]:
    """The programs on the page, by the name in their first line."""
    return dict(re.findall(r"^```python\n# file: (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def steps(text: str) -> list[Step]:
    """The commands on the page, in order."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            found.append(Step(command, shown))
    return found


def essence(line: str) -> str:
    """A line without what differs from run to run: numbers but those of bytes, their units, the folder, spaces of tables."""
    line = re.sub(r'File "[^"]*/([^"/]+)"', r'File "\1"', line)
    line = re.sub(r"(?<![\d.,])(?!\d+ B\b)\d[\d.,]*(\+\w+)?( ?(us|ms|s|min|KiB|MiB|GiB|TiB)\b)?", "#", line)
    return re.sub(r"\s+", " ", line).strip()


def difference(shown: list[str], printed: list[str]) -> str | None:
    """The first shown line that was not printed where it should have been, or None."""
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += r".*?".join(re.escape(part) for part in essence(line).split("...")) + "\n"
    text = "".join(f"{essence(line)}\n" for line in printed)
    return None if re.fullmatch(pattern, text) else f"shown:\n{pattern}\nprinted:\n{text}"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the README's files, and `python` and `wherry` on its path."""
    for name, program in files(README.read_text(encoding="utf-8")).items():
        (tmp_path / name).write_text(program, encoding="utf-8")
    tools = tmp_path / ".bin"
    tools.mkdir()
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tools / "wherry").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wherry "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="the README shows what a Linux machine without an accelerator prints"
)
def test_commands_print_what_the_readme_shows(desk: Path) -> None:
    environ = {
        **os.environ,
        "PATH": f"{desk / '.bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "120",
    }

    for step in steps(README.read_text(encoding="utf-8")):
        done = subprocess.run(
            ["sh", "-c", step.command],
            cwd=desk,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert difference(step.shown, done.stdout.splitlines()) is None, step.command


def test_there_is_something_to_run() -> None:
    text = README.read_text(encoding="utf-8")

    assert {"train.py", "choose.py"} <= files(text).keys()
    assert {step.command.split()[0] for step in steps(text)} >= {"python", "wherry"}
    assert {step.command.split()[1] for step in steps(text) if step.command.startswith("wherry")} >= {
        "run",
        "matrix",
        "devices",
    }


def test_every_block_is_a_file_or_commands() -> None:
    """Nothing on the page escapes the test above."""
    text = README.read_text(encoding="utf-8")

    opened = re.findall(r"^```(\w+)$", text, re.MULTILINE)

    assert len(opened) == len(files(text)) + len(re.findall(r"^```console$", text, re.MULTILINE))


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", README.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["loss 0.7 on cpu"], ["loss 0.7 on mps"]),
        (["one", "..."], ["two", "three"]),
        (["one"], ["one", "two"]),
        (["...", "last"], ["first"]),
    ],
)
def test_a_difference_is_noticed(shown: list[str], printed: list[str]) -> None:
    """The twin: the test above would notice."""
    assert difference(shown, printed) is not None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["loss 0.7 on cpu"], ["loss 0.8 on cpu"]),
        (["...", "last 1.3 s"], ["first", "second", "last 900 ms"]),
        (["a  b"], ["a b"]),
        (["cpu picked ..."], ["cpu picked Some Model, 3 GiB free"]),
    ],
)
def test_what_may_differ_is_no_difference(shown: list[str], printed: list[str]) -> None:
    assert difference(shown, printed) is None
