"""`wherry run`: an unmodified program on a device, the real one if it is here, else a rehearsed one."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from wherry.cli._console import THEME, Command, Status, complain
from wherry.cli._program import USAGE, ProgramCommand
from wherry.run import plan as plans
from wherry.run.attempt import Attempt
from wherry.run.children import stand_apart
from wherry.run.command import CommandError
from wherry.run.plan import Want
from wherry.run.program import find
from wherry.run.result import Result


def run(
    program: Annotated[list[str] | None, typer.Argument(metavar=USAGE, show_default=False)] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="cpu, cuda, rocm, mps, xpu, or one of several: cuda:1. "
            "[dim]Default: WHERRY_DEVICE, else what wherry.pick() chooses.[/]",
        ),
    ] = None,
    virtual: Annotated[bool, typer.Option("--virtual", help="Rehearse, whatever is here.")] = False,
    real: Annotated[bool, typer.Option("--real", help="Insist on the real device.")] = False,
    count: Annotated[
        int | None, typer.Option(metavar="N", help="How many devices there shall be. [dim]Default: one.[/]")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of each virtual device, such as 8GiB.")
    ] = None,
    result: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write how it ended as JSON, however it ended.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No closing line.")] = False,
) -> None:
    """Run an unmodified program on a device, here or not.

    The program computes real values, sees the device wherever it looks, and fails where the device would. Its stdout and
    its exit status are its own; wherry adds one line on stderr. Options after the program's name are the program's.

    [dim]Examples[/]
      wherry run --on mps train.py --epochs 3
      wherry run --on cuda --count 2 -- torchrun --nproc-per-node 2 train.py
      wherry run --on xpu -m pytest -q
    """
    if virtual and real:
        complain("--virtual and --real contradict each other. Give one of them, or neither.")
        raise typer.Exit(Status.MISUSE)
    if real and memory is not None:
        complain("--memory is for virtual devices: a real one has the memory it has. Leave out --memory or --real.")
        raise typer.Exit(Status.MISUSE)
    want = Want.VIRTUAL if virtual else Want.REAL if real else Want.EITHER
    stand_apart()
    found = find(program or [])
    where = plans.make(on, want=want, count=count, memory=memory)
    attempt = Attempt(found, where, result_file=result, tell=None if quiet else tell)
    try:
        ending = attempt.run()
    except CommandError as err:
        complain(str(err))
        raise typer.Exit(err.status) from None
    raise typer.Exit(ending.status)


def tell(result: Result) -> None:
    """Print the closing line on stderr, if there is one."""
    # The program may have closed it, or left a pipe that nobody reads. It is a courtesy: not worth an error.
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
        if sys.stderr.closed:
            return
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()  # so that in a terminal the closing line is the last
        Console(stderr=True, theme=THEME, highlight=False).print(_line(result), soft_wrap=True)
        sys.stderr.flush()


def _line(result: Result) -> Text:
    dot = " · " if (sys.stderr.encoding or "").lower().startswith("utf") else " - "
    first, *rest = result.closing_parts()
    line = Text("wherry: ", style="quiet")
    verb, _, where = first.partition(" ")
    line.append(verb, style="good" if verb == "ran" else "bad")
    line.append(f" {where}")
    for part in rest:
        line.append(dot, style="quiet").append(part, style="bad" if part is rest[0] and verb != "ran" else "quiet")
    return line


COMMAND = Command(run, position=20, cls=ProgramCommand)
