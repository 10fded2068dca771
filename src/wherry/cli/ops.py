"""`wherry ops`: which operators a backend has, by name or as a program uses them.

What the words mean (`kernel`, `composite`, ...) is `wherry.ops.catalog.Standing`.
"""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wherry import backends
from wherry.backends import Backend
from wherry.cli._console import THEME, Command, Status, complain, out
from wherry.errors import TorchMissing
from wherry.events import Use
from wherry.ops import catalog, coverage, instead
from wherry.ops.catalog import Standing, Support
from wherry.ops.coverage import Coverage, Entry, Lack
from wherry.ops.instead import Instead
from wherry.run.matrix import Outcome, Verdict, run_matrix
from wherry.run.program import find
from wherry.units import format_bytes, format_duration

_STYLES = {
    Standing.KERNEL: "good",
    Standing.COMPOSITE: "good",
    Standing.FALLS_BACK: "warning",
    Standing.MISSING: "bad",
    Standing.FOREIGN: "quiet",
    Standing.UNKNOWN: "quiet",
}
_MEANINGS = {
    Standing.KERNEL: "has a kernel of its own",
    Standing.COMPOSITE: "is made of other operators",
    Standing.FALLS_BACK: "goes through the CPU, always",
    Standing.MISSING: "raises NotImplementedError",
    Standing.FOREIGN: "belongs to another backend, whose own code alone calls it",
}
_SHOWN_LINES = 3
_SHOWN_SITES = 3


def ops(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OP]...",
            show_default=False,
            help='Operators as torch writes them: linalg.svd, F.ctc_loss, "special_*". With --used-by: what SCRIPT is given.',
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Backends, with commas between: mps,xpu. [dim]Default: every accelerator.[/]"
        ),
    ] = None,
    used_by: Annotated[
        str | None,
        typer.Option(metavar="SCRIPT", help="Run a program on the CPU, and list what it used that a backend lacks."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="How long the program may take.", show_default=False),
    ] = None,
) -> None:
    """Say which operators a backend has, for the torch that is installed.

    Without a name: how many there are. Exit status 1 if something that was
    asked about, or used, raises on a backend.

      wherry ops
      wherry ops linalg.svd F.ctc_loss --on mps
      wherry ops --used-by train.py --epochs 1 --on mps
    """
    asked = _backends(on)
    words = names or []
    if find_spec("torchgen") is None:
        raise TorchMissing("wherry ops")
    if used_by is None:
        odd = next((word for word in words if word.startswith("-")), None)
        if odd is not None:
            complain(f"there is no option {odd}. Words for a program come after --used-by SCRIPT.")
            raise typer.Exit(Status.MISUSE)
        _tell_summary(asked, as_json=as_json) if not words else _tell_entries(words, asked, as_json=as_json)
        return
    _tell_used([used_by, *words], asked, as_json=as_json, timeout=timeout)


def _backends(names: str | None) -> list[Backend]:
    chosen = [backends.find(name.strip().partition(":")[0]) for name in (names or "").split(",") if name.strip()]
    return list(dict.fromkeys(chosen)) or [backend for backend in backends.all() if backend.priority > 0]


def _release() -> str:
    return catalog.release().partition("+")[0]


# -- how many


def _tell_summary(asked: Sequence[Backend], *, as_json: bool) -> None:
    counts = {backend.name: catalog.summary(backend) for backend in asked}
    if as_json:
        _print_json(
            {
                "torch": catalog.release(),
                "overloads": len(catalog.overloads()),
                "backends": {
                    name: {standing.value: number for standing, number in found.items()}
                    for name, found in counts.items()
                },
            }
        )
        return
    table = _grid()
    table.add_column("", no_wrap=True)
    for backend in asked:
        table.add_column(backend.name, justify="right", no_wrap=True)
    table.add_column("an operator that ...")
    for standing, meaning in _MEANINGS.items():
        cells = [f"{counts[backend.name][standing]:,}" for backend in asked]
        table.add_row(Text(standing.value, _STYLES[standing]), *cells, Text(meaning, "quiet"))
    sources = _grid()
    sources.show_header = False
    for backend in asked:
        if backend.kernels is not None and backend.kernels.source:
            sources.add_row(Text(backend.name, "device"), Text(backend.kernels.source, "quiet"))
    out().print(
        Text(f"{len(catalog.overloads()):,} overloads of PyTorch's own operators in torch {_release()}", "heading"),
        "",
        table,
        "",
        Text("Read from its native_functions.yaml; what that does not show, from:", "quiet")
        if sources.row_count
        else "",
        sources,
        sep="\n",
    )


# -- by name


def _tell_entries(words: Sequence[str], asked: Sequence[Backend], *, as_json: bool) -> None:
    operators = coverage.look_up(words)
    found = {name: [coverage.entry(name, backend) for backend in asked] for name in operators}
    if as_json:
        _print_json([entry.to_json() for entries in found.values() for entry in entries])
    else:
        table = _grid()
        table.add_column("operator", no_wrap=True)
        for backend in asked:
            table.add_column(backend.name, no_wrap=True)
        for name, entries in found.items():
            table.add_row(name, *(Text(entry.standing.value, _STYLES[entry.standing]) for entry in entries))
        console = out()
        console.print(table)
        shown = {entry.standing for entries in found.values() for entry in entries}
        console.print(
            "", *(Text(f"{each.value}: {_MEANINGS[each]}", "quiet") for each in _MEANINGS if each in shown), sep="\n"
        )
        for name, entries in found.items():
            remarks = _remarks(entries)
            if remarks:
                _show(console, [(0, ""), (0, Text(name, "heading")), *((2, each) for each in remarks)])
    missing = any(entry.standing is Standing.MISSING for entries in found.values() for entry in entries)
    raise typer.Exit(Status.FAILED if missing else Status.OK)


def _remarks(entries: Iterable[Entry]) -> list[RenderableType]:
    """What there is to say of an operator beyond its standing on each backend, and what to write in its place."""
    lines: list[RenderableType] = []
    known: dict[Instead, None] = {}
    for entry in entries:
        lacks = entry.standing in catalog.LACKING or entry.calls or entry.limited
        wanted = [each for each in entry.instead if (entry.calls_backward if each.backward else lacks)]
        known.update(dict.fromkeys(wanted))
        parts = [
            ("calls " if entry.always else "some calls need ", entry.calls),
            ("its gradient calls ", entry.calls_backward),
            ("but ", entry.others),
        ]
        for label, supports in parts:
            if supports:
                lines.append(Text.assemble((f"{entry.backend}  ", "device"), label, *_supports(supports)))
        if entry.refuses:
            text = f"its kernel has no {', '.join(dtype for dtype, _ in entry.refuses)}"
            lines.append(Text.assemble((f"{entry.backend}  ", "device"), text))
        if entry.limited:
            lines.append(Text.assemble((f"{entry.backend}  ", "device"), "its kernel takes some sizes or dtypes only"))
        named = next((each for each in entry.overloads if each.named != each.operator), None)
        if entry.standing is Standing.MISSING and named is not None and not entry.calls:
            lines.append(Text.assemble((f"{entry.backend}  ", "device"), "its errors name ", named.named))
    return [*lines, *_insteads(known)]


def _supports(supports: Sequence[Support]) -> list[str | tuple[str, str]]:
    parts: list[str | tuple[str, str]] = []
    for each in supports:
        parts += [", " if parts else "", f"{each.named}: ", (each.standing.value, _STYLES[each.standing])]
    return parts


def _insteads(known: Iterable[Instead]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for each in known:
        whose = " (its gradient)" if each.backward else ""
        lines += [*_code("instead of", each.in_place_of + whose, ""), *_code("write", each.write, "good")]
        if each.note:
            lines.append(Padding(Text(each.note, "quiet"), (0, 0, 0, _CODE)))
    return lines


_CODE = len("instead of   ")


def _code(label: str, code: str, style: str) -> list[RenderableType]:
    """Code as it is, to be copied."""
    labels = (label, *[""] * code.count("\n"))
    return [
        Text.assemble((f"{label:{_CODE}}", "quiet"), (line, style), no_wrap=True, overflow="ignore")
        for label, line in zip(labels, code.splitlines(), strict=True)
    ]


def _show(console: Console, lines: Iterable[tuple[int, RenderableType]]) -> None:
    """Print lines, each so far from the left. Code is not broken: what is longer than a line goes on in the next."""
    for indent, line in lines:
        if isinstance(line, Text) and line.overflow == "ignore":
            console.print(Text(" " * indent) + line, soft_wrap=True)
        else:
            console.print(Padding(line, (0, 0, 0, indent)) if indent else line)


# -- by use


def _tell_used(words: list[str], asked: Sequence[Backend], *, as_json: bool, timeout: float | None) -> None:
    if find_spec("torch") is None:
        raise TorchMissing("wherry ops --used-by")
    program = find(words)
    folder = Path(tempfile.mkdtemp(prefix="wherry-ops-"))
    console = Console(stderr=True, theme=THEME, highlight=False)
    try:
        with (
            console.status(f"running {words[0]} on the CPU", spinner="dots")
            if console.is_terminal
            else contextlib.nullcontext()
        ):
            (verdict,) = run_matrix(program, ["cpu"], folder=folder, timeout=timeout, surveys=True).verdicts
        counts = verdict.result.counts
        uses = () if counts is None else counts.uses
        found = [coverage.of_uses(uses, backend) for backend in asked]
        if as_json:
            _print_json(
                {"program": words, "run": verdict.result.to_json(), "coverage": [each.to_json() for each in found]}
            )
        else:
            _print(out(), words[0], verdict, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ran = verdict.outcome is Outcome.OK and all(each.operators for each in found)
    raise typer.Exit(Status.OK if ran and all(each.runs for each in found) else Status.FAILED)


def _print(console: Console, name: str, verdict: Verdict, found: Sequence[Coverage]) -> None:
    first = found[0]
    if verdict.outcome is not Outcome.OK:
        error = verdict.result.error
        said = error.headline if error is not None else f"exit status {verdict.result.status}"
        where = f" at {error.where}" if error is not None and error.where else ""
        console.print(Text.from_ansi("\n".join(verdict.last_lines(_SHOWN_LINES))), soft_wrap=True)
        failed = f"{name} failed on the CPU{where}: {said}. What it used until then:"
        console.print("", Text(failed, "bad"), sep="\n", soft_wrap=True)
    if not first.operators:
        console.print(f"{name} used no operator of torch that was seen: nothing is known of it.", soft_wrap=True)
        return
    used = f" used {first.operators:,} operators of torch {_release()} on the CPU, in {first.calls:,} calls and "
    console.print(Text.assemble((name, "heading"), used, format_duration(verdict.seconds), "."), soft_wrap=True)
    for each in found:
        _show(console, [(0, ""), *_covered(each)])


def _covered(found: Coverage) -> list[tuple[int, RenderableType]]:
    missing = [lack for lack in found.lacks if lack.support.standing is Standing.MISSING]
    through = [lack for lack in found.lacks if lack.support.standing is Standing.FALLS_BACK]
    clauses = []
    if missing:
        clauses.append((f"{len(missing)} missing", "bad"))
    if through:
        clauses.append((f"{len(through)} through the CPU", "warning"))
    if not clauses:
        clauses.append(("has all of them" if not found.unknown else "has all that are PyTorch's own", "good"))
    line = Text.assemble((found.backend, "device"), "  ")
    for index, (text, style) in enumerate(clauses):
        line.append(", " if index else "").append(text, style)
    parts: list[tuple[int, RenderableType]] = [(0, line)]
    for lack in found.lacks:
        parts += _lack(lack)
    if found.limited:
        told = f"does not take every size or dtype: {', '.join(found.limited)}. wherry run --on {found.backend} tells."
        parts.append((2, Text(told, "warning")))
    if found.unknown:
        names = ", ".join(found.unknown[:6]) + (", ..." if len(found.unknown) > 6 else "")
        parts.append((2, Text(f"not known: {names}, of other libraries", "quiet")))
    variables = {
        backend.kernels.variable for backend in backends.all() if backend.name == found.backend and backend.kernels
    }
    if missing and (variable := next(iter(variables), None)):
        across = format_bytes(sum(lack.nbytes for lack in found.lacks))
        told = f"With {variable}=1 they go through the CPU: {across} across."
        parts.append((2, Text(told, "quiet")))
    return parts


def _lack(lack: Lack) -> list[tuple[int, RenderableType]]:
    support = lack.support
    head = Text.assemble(
        (support.named, "heading"), "  ", (support.standing.value, _STYLES[support.standing]), f"  {_times(lack.count)}"
    )
    shown, more = lack.uses[:_SHOWN_SITES], len(lack.uses) - _SHOWN_SITES
    lines = [
        Text.assemble(_where(use), "  ", (_source(use), "quiet"), no_wrap=True, overflow="ellipsis") for use in shown
    ]
    if more > 0:
        lines.append(Text(f"and {more} more {'line' if more == 1 else 'lines'}", "quiet"))
    return [(2, head), *((4, each) for each in (*lines, *_suggestion(lack)))]


def _suggestion(lack: Lack) -> list[RenderableType]:
    """What to write in place of the first line that calls it: in the program's own words, where they are understood."""
    if re.search(r"\b(backward|grad)\(", _source(lack.uses[0])):
        return []  # it goes away with what it is the gradient of
    falls_back = lack.support.standing is Standing.FALLS_BACK
    known = [each for each in lack.instead if not (falls_back and each.through_cpu)]  # it takes that way as it is
    operator = lack.support.operator.removeprefix("aten::").partition(".")[0]
    for call in _expressions(_source(lack.uses[0])):
        found = instead.in_words_of(call, operator=operator)
        if found is not None and found[0] in known:
            entry, write = found
            return _insteads([replace(entry, in_place_of=ast.unparse(call), write=write)])
    return _insteads([each for each in known if not each.backward][:1])


def _expressions(line: str) -> Iterator[ast.expr]:
    """The calls in a line of a program and what is read off them, the outermost first; none of half a statement."""
    with contextlib.suppress(SyntaxError):
        wanted = (ast.Call, ast.Attribute, ast.Subscript, ast.BinOp)
        yield from (node for node in ast.walk(ast.parse(line)) if isinstance(node, wanted))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _where(use: Use) -> str:
    if use.file is None:
        return "(no line of the program)"
    try:
        name = min(os.path.relpath(use.file), use.file, key=len)
    except (ValueError, OSError):  # another drive; a current folder that is gone
        name = use.file
    return f"{name}:{use.line}"


def _source(use: Use) -> str:
    return "" if use.file is None or use.line is None else linecache.getline(use.file, use.line).strip()


def _grid() -> Table:
    return Table(box=None, header_style="heading", padding=(0, 3, 0, 0), pad_edge=False)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


COMMAND = Command(ops, position=45, settings={"ignore_unknown_options": True})
