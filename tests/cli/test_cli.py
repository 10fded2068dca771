"""The command line as a whole: its commands, its sentences, its exit statuses."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import wherry
from wherry.cli import app, main
from wherry.cli._console import Command, Status
from wherry.errors import BadSize


def wherry_does(*words: str, without_torch: bool = False, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in an interpreter of its own."""
    program = "import sys; sys.argv[0] = 'wherry'\n"
    if without_torch:
        program += "sys.modules['torch'] = None\n"
    program += "from wherry.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "COLUMNS": "80", **environ},
    )


def test_version_names_what_matters_in_a_report() -> None:
    done = CliRunner().invoke(app(), ["--version"])

    assert done.exit_code == Status.OK
    assert done.output.startswith(f"wherry {wherry.__version__} (torch 2.")
    assert f"Python {platform.python_version()}" in done.output


def test_no_arguments_show_the_help() -> None:
    done = CliRunner().invoke(app(), [])

    assert "devices" in done.output
    assert "wherry run --on mps train.py" in done.output


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_the_commands_in_their_order(flag: str) -> None:
    done = CliRunner().invoke(app(), [flag])

    assert done.exit_code == Status.OK
    assert done.output.index("│ devices ") < done.output.index("│ run ")


@pytest.mark.slow
def test_python_m_wherry_is_wherry() -> None:
    done = subprocess.run([sys.executable, "-m", "wherry", "--version"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith(f"wherry {wherry.__version__} ")


@pytest.mark.slow
def test_typo_in_a_command_is_misuse_with_the_closest_name() -> None:
    done = wherry_does("devics")

    assert done.returncode == Status.MISUSE
    assert "Did you mean 'devices'?" in done.stderr
    assert done.stdout == ""


def test_our_own_error_is_one_sentence_and_misuse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def application() -> object:
        def fail(*, prog_name: str) -> None:
            raise BadSize("lots", "it does not start with a number")

        return fail

    monkeypatch.setattr("wherry.cli.app", application)

    with pytest.raises(SystemExit) as caught:
        main()

    shown = capsys.readouterr()
    assert caught.value.code == Status.MISUSE
    assert shown.out == ""
    assert shown.err.startswith('wherry: "lots" is no size: it does not start with a number. ')
    assert shown.err.count("\n") == 1


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def application() -> object:
        def fail(*, prog_name: str) -> None:
            raise ZeroDivisionError

        return fail

    monkeypatch.setattr("wherry.cli.app", application)

    with pytest.raises(ZeroDivisionError):
        main()


def test_command_is_named_like_its_function() -> None:
    def do_it_() -> None: ...

    assert Command(do_it_, position=1).name == "do-it"
