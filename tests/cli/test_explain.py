"""`wherry explain`: where it reads, what it prints, how it exits."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wherry.cli import app
from wherry.cli import explain as command
from wherry.cli._console import Status

ERROR = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
PROGRAM = """import torch

x = torch.ones(3, device="cuda")
scale = torch.full((3,), 2.0)
print(x * scale)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    path = tmp_path / "train.log"
    path.write_text(
        f'Traceback (most recent call last):\n  File "{tmp_path / "train.py"}", line 5, in <module>\n    print(x * scale)\n'
        f"          ~~^~~~~~~\nRuntimeError: {ERROR}\n",
        encoding="utf-8",
    )
    return path


def explain(*words: str, given: bytes | str | None = None):
    return CliRunner().invoke(app(), ["explain", *words], input=given)


def test_a_file_is_explained(log: Path) -> None:
    done = explain(str(log))

    assert done.exit_code == Status.OK
    shown = done.stdout.replace(str(log.parent) + "/", "")
    assert [line.rstrip() for line in shown.splitlines()] == [
        "wherry: scale is on cpu, and should be on cuda:0",
        "  failed at train.py:5",
        "    5 | print(x * scale)",
        "      |       -   ^^^^^",
        "      |       cuda:0 cpu",
        "  made at line 4",
        "    4 | scale = torch.full((3,), 2.0)",
        "  why  scale is on cpu from line 4, and was never moved.",
        "  fix  Move it too: scale = scale.to(x.device)",
    ]


@pytest.mark.parametrize("words", [[], ["-"]])
def test_what_is_piped_in_is_explained(log: Path, words: list[str]) -> None:
    done = explain(*words, given=log.read_bytes())

    assert done.exit_code == Status.OK
    assert done.stdout.startswith("wherry: scale is on cpu")


def test_json_has_the_keys_of_a_result_and_where_it_failed(log: Path) -> None:
    done = explain(str(log), "--json")

    answer = json.loads(done.stdout)
    assert list(answer) == ["error", "site", "op", "culprit", "operands", "why", "fix", "siblings"]
    assert answer["error"] == f"RuntimeError: {ERROR}"
    assert answer["site"] == {"file": str(log.parent / "train.py"), "line": 5}
    assert answer["culprit"]["name"] == "scale"
    assert answer["culprit"]["origin"] == {"file": str(log.parent / "train.py"), "line": 4}


def test_sources_are_looked_for_below_root(log: Path) -> None:
    text = log.read_text(encoding="utf-8").replace(str(log.parent), "/somewhere/else")

    assert "scale is on cpu" not in explain(given=text).stdout
    assert explain("--root", str(log.parent), given=text).stdout.startswith("wherry: scale is on cpu")


def test_without_the_sources_it_says_so_and_what_the_line_tells(log: Path) -> None:
    done = explain(given=log.read_text(encoding="utf-8").replace(str(log.parent), "/gone"))

    assert done.exit_code == Status.OK
    said = " ".join(done.stdout.split())
    assert "why train.py is not here, or has changed, so the message is all there is to go by." in said
    assert "Which of x and scale it is, cannot be told from the line alone." in said
    assert "fix Before this line, print(x.device, scale.device); then move the one that differs with .to(...)." in said


def test_a_log_without_a_device_error_is_the_answer_no(tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("Traceback (most recent call last):\nKeyError: 'x'\n", encoding="utf-8")

    done = explain(str(tmp_path / "other.log"))

    assert done.exit_code == Status.FAILED
    assert done.stdout == ""
    assert done.stderr.startswith("wherry: There is no device error in ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.log"], "There is no file missing.log."),
        (["."], ". cannot be read: Is a directory."),
        (["--root", "missing", "x.log"], "--root missing is no folder."),
    ],
)
def test_what_cannot_be_read_is_misuse(words: list[str], sentence: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    done = explain(*words)

    assert done.exit_code == Status.MISUSE
    assert done.stderr == f"wherry: {sentence}\n"


def test_a_terminal_is_not_waited_for(monkeypatch, capsys) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())

    with pytest.raises(command.typer.Exit) as ended:
        command.explain()

    assert ended.value.exit_code == Status.MISUSE
    assert "wherry explain FILE" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_any_encoding_is_read(log: Path, encoding: str) -> None:
    log.write_bytes(("café\n" + log.read_text(encoding="utf-8")).encode(encoding))

    assert explain(str(log)).stdout.startswith("wherry: scale is on cpu")


@pytest.mark.slow
def test_of_a_long_log_the_end_is_read(log: Path) -> None:
    text = log.read_bytes()
    noise = b"loss 0.3\n" * 1_000_000

    log.write_bytes(noise + text)

    assert explain(str(log)).stdout.startswith("wherry: scale is on cpu")
    assert explain(given=noise + text).stdout.startswith("wherry: scale is on cpu")
    assert explain(given=text + noise).exit_code == Status.FAILED
