"""`wherry run`: an unmodified program on a device, the real one if it is here, else a rehearsed one."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from wherry.cli._console import THEME, Command, Status, complain
from wherry.cli._program import PROGRAM, ProgramCommand
from wherry.run import plan as plans
from wherry.run.attempt import Attempt
from wherry.run.children import stand_apart
from wherry.run.command import CommandError
from wherry.run.plan import Want
from wherry.run.program import find
from wherry.run.result import Result
from wherry.run.uncaught import QUIET


def run(
    program: PROGRAM = None,
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
    profile: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model of each virtual device, such as rtx4090, m1 or a770.")
    ] = None,
    result: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write how it ended as JSON, however it ended.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No closing line, no explanations.")] = False,
    # What `wherry ops --used-by` asks for: --result then has a list of the operators that were used.
    surveys: Annotated[bool, typer.Option("--surveys", hidden=True)] = False,
) -> None:
    """Run an unmodified program on a device, here or not.

    The program computes real values, sees the device wherever it looks, and
    fails where the device would. Its stdout and its exit status are its own;
    wherry adds one line on stderr, and explains a device error below its
    traceback. Child Python processes take part.

      wherry run --on mps train.py --epochs 3
      wherry run --on xpu -m pytest -q
      wherry run --on cuda --count 2 -- torchrun --nproc-per-node 2 train.py
    """
    if virtual and real:
        complain("--virtual and --real contradict each other. Give one of them, or neither.")
        raise typer.Exit(Status.MISUSE)
    if real and memory is not None:
        complain("--memory is for virtual devices: a real one has the memory it has. Leave out --memory or --real.")
        raise typer.Exit(Status.MISUSE)
    if real and profile is not None:
        complain("--profile is for virtual devices: a real one is what it is. Leave out --profile or --real.")
        raise typer.Exit(Status.MISUSE)
    want = Want.VIRTUAL if virtual else Want.REAL if real else Want.EITHER
    stand_apart()
    found = find(program or [])
    where = plans.make(on, want=want, count=count, memory=memory, profile=profile, surveys=surveys)
    os.environ.pop(QUIET, None)
    if quiet:
        os.environ[QUIET] = "1"
    attempt = Attempt(found, where, result_file=result, tell=None if quiet else tell)
    try:
        ending = attempt.run()
    except CommandError as err:
        complain(str(err))
        raise typer.Exit(err.status) from None
    raise typer.Exit(ending.status)


def tell(result: Result) -> None:
    """Print the closing line on the stderr that the process began with, if it still has it."""
    # A courtesy: not worth an error. RuntimeError: a signal came while the program was writing.
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
        sys.stdout.flush()  # so that in a terminal the closing line is the last
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
        stream = sys.__stderr__
        if stream is None:
            return
        stream.flush()
        console = Console(file=stream, theme=THEME, highlight=False)
        with console.capture() as capture:
            console.print(_line(result, stream.encoding), soft_wrap=True)
        # Past the stream: what it could not write would stay in it, and make Python exit with 120.
        os.write(stream.fileno(), capture.get().encode(stream.encoding, "replace"))


def _line(result: Result, encoding: str) -> Text:
    dot = " · " if encoding.lower().startswith("utf") else " - "
    first, *rest = result.closing_parts()
    line = Text("wherry: ", style="quiet")
    verb, _, where = first.partition(" ")
    line.append(verb, style="good" if verb == "ran" else "bad")
    line.append(f" {where}")
    for part in rest:
        line.append(dot, style="quiet").append(part, style="bad" if part is rest[0] and verb != "ran" else "quiet")
    return line


COMMAND = Command(run, position=20, cls=ProgramCommand)
