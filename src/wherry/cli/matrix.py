"""`wherry matrix`: the same program on every backend, and one table of verdicts."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from wherry.cli._console import THEME, Command, Status, complain, out
from wherry.cli._program import PROGRAM, ProgramCommand
from wherry.errors import TorchMissing
from wherry.explain import message
from wherry.run.matrix import Matrix, Outcome, Verdict, choose, run_matrix
from wherry.run.program import find
from wherry.run.result import fell_back
from wherry.units import format_bytes, format_duration

_STYLES = {Outcome.OK: "good", Outcome.FALLS_BACK: "warning"}
_SHOWN_LINES = 12


def matrix(
    program: PROGRAM = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Backends, with commas between: cuda,mps. [dim]Default: every one.[/]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as a list of JSON objects.")] = False,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="How long each may take.", show_default=False)
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="How many run at a time. More than one: mind files and ports they share."
        ),
    ] = 1,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all that each one printed.")] = False,
) -> None:
    """Run a program on every backend, rehearsed, and compare.

    A "{device}" in the program's arguments becomes what torch calls each
    backend's device: cpu, cuda (for rocm as well), mps, xpu. Exit status 1
    if it fails anywhere.

      wherry matrix train.py --epochs 1 --device {device}
      wherry matrix --on cuda,mps -m pytest -q
    """
    found = find(program or [])
    names = choose([name for name in (on or "").split(",") if name.strip()])
    if find_spec("torch") is None:
        raise TorchMissing("wherry matrix")
    folder = Path(tempfile.mkdtemp(prefix="wherry-matrix-"))
    keep = False
    try:
        with _sigterm_interrupts(), _progress(names) as progress:
            outcome = run_matrix(
                found, names, folder=folder, timeout=timeout, jobs=jobs, started=progress.started, ended=progress.ended
            )
        keep = not outcome.ok
        if as_json:
            print(json.dumps(outcome.to_json(), indent=2))  # noqa: T201 - the answer itself
        else:
            _show(outcome, folder, verbose=verbose)
    except KeyboardInterrupt:
        complain("Interrupted. What was running has been ended.")
        raise typer.Exit(128 + signal.SIGINT) from None
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    raise typer.Exit(Status.OK if outcome.ok else Status.FAILED)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """A terminated matrix must not leave its programs behind: they are in sessions of their own."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Clock:
    """A spinner and the seconds since it was made."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._spinner = Spinner("dots", style="device")

    def __rich__(self) -> Spinner:
        self._spinner.update(text=Text(f"running  {time.monotonic() - self._begin:.0f} s", style="quiet"))
        return self._spinner


class _Progress:
    """The backends, on stderr: drawn again and again in a terminal, a line as each one ends elsewhere."""

    def __init__(self, names: tuple[str, ...], console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._width = max(len(name) for name in names)
        self._states: dict[str, _Clock | Verdict | None] = dict.fromkeys(names)
        self.redraw: Callable[[], None] = lambda: None

    def started(self, name: str) -> None:
        with self._lock:
            self._states[name] = _Clock()
        self.redraw()

    def ended(self, verdict: Verdict) -> None:
        with self._lock:
            self._states[verdict.backend] = verdict
        self.redraw()
        if not self._console.is_terminal:
            self._console.print(f"wherry: {verdict.backend:{self._width}}  ", _brief(verdict), soft_wrap=True)

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        with self._lock:
            for name, state in self._states.items():
                if state is None:
                    shown: Text | _Clock = Text("waiting", style="quiet")
                else:
                    shown = _brief(state) if isinstance(state, Verdict) else state
                table.add_row(Text(name, style="device"), shown)
        return table


@contextlib.contextmanager
def _progress(names: tuple[str, ...]) -> Iterator[_Progress]:
    console = Console(stderr=True, theme=THEME, highlight=False)
    progress = _Progress(names, console)
    if not console.is_terminal:
        yield progress
        return
    # Transient: the table that follows says it all again.
    with Live(progress, console=console, refresh_per_second=10, transient=True) as live:
        progress.redraw = live.refresh
        yield progress


def _brief(verdict: Verdict) -> Text:
    return Text.assemble(
        (verdict.outcome.value, _STYLES.get(verdict.outcome, "bad")),
        ("  ", ""),
        (format_duration(verdict.seconds), "quiet"),
    )


def _show(outcome: Matrix, folder: Path, *, verbose: bool) -> None:
    console = out()
    shown: dict[object, str] = {}
    for verdict in outcome.verdicts:
        if verbose:
            _show_output(console, verdict, None)
        elif not verdict.outcome.ran:
            same = shown.setdefault(_place(verdict), verdict.backend)
            if same == verdict.backend:
                _show_output(console, verdict, _SHOWN_LINES)
            else:
                console.print(Text.assemble((verdict.backend, "device"), f" failed where {same} did.\n"))
    console.print(_table(outcome))
    if not outcome.ok:
        console.print(Text(f"What they printed is in {folder}", style="quiet"), soft_wrap=True)


def _place(verdict: Verdict) -> object:
    """Two failures of one place are shown once. One without a place is like no other."""
    error = verdict.result.error
    return (error.type, error.where) if error and error.where else verdict.backend


def _show_output(console: Console, verdict: Verdict, count: int | None) -> None:
    lines = verdict.last_lines(count)
    if not lines:
        return
    console.print(Rule(Text.assemble((verdict.backend, "device")), align="left", style="quiet"))
    # As it came: no wrapping, no markup, and the program's own colours.
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    _explain(console, verdict)
    console.print()


def _explain(console: Console, verdict: Verdict) -> None:
    """Why it failed and what to do, where it was a device error."""
    explanation = (verdict.result.error.explanation if verdict.result.error else None) or {}
    culprit = explanation.get("culprit")
    strayed = verdict.outcome is Outcome.FAILED  # else it is where it should be
    if isinstance(culprit, dict) and strayed and culprit["expected_device"] not in (None, culprit["device"]):
        where = f" is on {culprit['device']}, and should be on {culprit['expected_device']}"
        console.print(Text.assemble((str(culprit["name"]), "bad"), where), soft_wrap=True)
    for label in ("why", "fix"):
        sentence = explanation.get(label)
        if isinstance(sentence, str):
            console.print(
                Text.assemble((f"{label}  ", "heading"), (sentence, "good" if label == "fix" else "")), soft_wrap=True
            )


def _table(outcome: Matrix) -> Table:
    table = Table(box=None, pad_edge=False, header_style="heading", padding=(0, 2, 0, 0))
    for header in ("backend", "verdict"):
        table.add_column(header, no_wrap=True)
    for header in ("ops", "to device", "back", "time"):
        table.add_column(header, justify="right", no_wrap=True)
    remarks = [_remark(verdict) for verdict in outcome.verdicts]
    if any(remarks):
        table.add_column("remark" if outcome.ok else "error", overflow="fold")
    for verdict, remark in zip(outcome.verdicts, remarks, strict=True):
        counts = verdict.result.counts
        cells = [
            Text(verdict.backend, style="device"),
            Text(verdict.outcome.value, style=_STYLES.get(verdict.outcome, "bad")),
            "" if counts is None else f"{counts.ops:,}",
            "" if counts is None else format_bytes(counts.h2d_nbytes),
            "" if counts is None else format_bytes(counts.d2h_nbytes),
            format_duration(verdict.seconds),
        ]
        table.add_row(*cells, *([remark] if any(remarks) else []))
    return table


def _remark(verdict: Verdict) -> Text:
    """What went wrong, or through the CPU."""
    error, counts = verdict.result.error, verdict.result.counts
    if verdict.outcome is Outcome.FALLS_BACK and counts is not None:
        return Text(f"runs, {fell_back(counts)}")
    if verdict.outcome.ran:
        return Text()
    if error is None:
        said = verdict.last_lines(1)
        return Text(said[0] if said else f"exit status {verdict.result.status}")
    read = message.read(error.type, error.message)
    lacked = {Outcome.NO_KERNEL: read and read.op and f"no {read.op}", Outcome.NO_DTYPE: read and f"no {read.dtype}"}
    text = Text(lacked.get(verdict.outcome) or textwrap.shorten(error.headline, 120, placeholder=" ..."))
    if error.where:
        text = Text.assemble((error.where, "heading"), " ", text)
    return text


COMMAND = Command(matrix, position=30, cls=ProgramCommand)
