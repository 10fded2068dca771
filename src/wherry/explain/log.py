"""A pasted log or traceback: what failed, where, and, from the sources that can be found, which tensor did not get moved.

Needs no torch and runs nothing. Understands the tracebacks of Python, with or without the marks below a line, those of
IPython and pytest, of TorchScript and of `torch.compile`'s "from user code", those that a DataLoader worker or another
process sent home as text, and prefixes such as "[rank0]:".
"""

from __future__ import annotations

import ast
import itertools
import re
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherry.explain import message
from wherry.explain.belief import Reading, Scope
from wherry.explain.diagnosis import Diagnosis
from wherry.explain.frames import Frame
from wherry.explain.message import Message
from wherry.explain.scene import Scene, complete, head
from wherry.explain.source import Function, Site, Source, source_of

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^(?:\[(?:rank)?\d+\]:\s?|\S+ \d+ \S+ \| |E\s{2,}|\s*\|\s)")
_PYTHON = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?\s*$')
_IPYTHON = re.compile(
    r"^(?:File (?P<file>[^\s:]+\.py):(?P<line>\d+)(?:, in (?P<function>[\w.<>]+))?|Cell In\[\d+\], line (?P<cell>\d+))"
)
_PYTEST = re.compile(
    r"^(?P<file>[\w./\\-]+\.py):(?P<line>\d+): (?P<error>[\w.]*(?:Error|Exception)|in (?P<function>\w+))?\s*$"
)
_ERROR = re.compile(
    r"^\s*(?P<kind>(?:[\w]+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning|Failed))(?::\s?(?P<text>.*))?$"
)
_MARKS = re.compile(r"^(?P<indent>\s*)(?P<marks>[~^]+)\s*(?:<--- HERE)?$")
_LIBRARY = ("site-packages", "dist-packages", "/lib/python3", "\\lib\\", "/torch/", "<frozen ")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a traceback.

    Attributes:
        file, line, function: Where.
        code: The line of source that the log shows, without its indentation; or "".
        span: First and last column of what its marks underline, in that text; or None.
    """

    file: str
    line: int
    function: str | None
    code: str = ""
    span: tuple[int, int] | None = None

    @property
    def is_users(self) -> bool:
        return not any(part in self.file for part in _LIBRARY)


@dataclass(frozen=True, slots=True)
class Traceback:
    """One traceback of a log.

    Attributes:
        entries: The outermost first.
        kind, text: The exception's type and text.
    """

    entries: tuple[Entry, ...]
    kind: str
    text: str


def explain_log(text: str, root: Path | None = None) -> Diagnosis | None:
    """Explain the device error in a log.

    Args:
        text: The log: any text with a traceback in it, or the text of the error alone.
        root: The folder to look for sources in that are not where the log says; by default the current one.

    Returns:
        The diagnosis of the last device error in it, or None where there is none. What the sources do not tell is left out.
    """
    device_errors = [
        (found, read) for found in tracebacks(text) if (read := message.read(found.kind, found.text)) is not None
    ]
    # The innermost entry is the user's in the one that tells most.
    for found, read in reversed(device_errors):
        if any(entry.is_users for entry in found.entries):
            return _explain(found, read, root or Path.cwd())
    if device_errors:
        found, read = device_errors[-1]
        return _explain(found, read, root or Path.cwd())
    return None


def tracebacks(text: str) -> list[Traceback]:
    """The tracebacks of a log, in order."""
    lines = [_PREFIX.sub("", _ANSI.sub("", line)) for line in text.splitlines()]
    found: list[Traceback] = []
    entries: list[Entry] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        entry, number = _entry(lines, number)
        if entry is not None:
            entries.append(entry)
            continue
        error = _ERROR.match(line)
        if error is not None and (entries or message.read(error["kind"], error["text"] or "") is not None):
            said = [error["text"] or ""]
            while number < len(lines) and lines[number].strip() and not _starts(lines[number]) and len(said) < 40:
                said.append(lines[number])
                number += 1
            found.append(Traceback(tuple(entries), error["kind"], "\n".join(said)))
            if "Original Traceback" not in said[-1]:
                entries = []
        elif "Traceback (most recent call last)" in line or "from user code:" in line:
            entries = []
        elif error is None and line.strip() and not entries and message.read("RuntimeError", line) is not None:
            found.append(Traceback((), "RuntimeError", line.strip()))
    return found


def _starts(line: str) -> bool:
    return bool(_PYTHON.match(line) or _ERROR.match(line) or "Traceback" in line or _IPYTHON.match(line))


def _entry(lines: list[str], number: int) -> tuple[Entry | None, int]:
    """The entry that begins at a line, and the number of the line after it."""
    line = lines[number]
    match = _PYTHON.match(line) or _IPYTHON.match(line)
    if match is None:
        pytest = _PYTEST.match(line)
        if pytest is None:
            return None, number + 1
        shown = next(
            (lines[i][1:].strip() for i in range(number - 1, max(-1, number - 40), -1) if lines[i].startswith(">")), ""
        )
        return Entry(pytest["file"], int(pytest["line"]), pytest["function"], shown), number + 1
    named = match.groupdict()
    file = named.get("file") or "<cell>"
    at = int(named.get("line") or named.get("cell") or 0)
    number += 1
    code, span = "", None
    if named.get("cell") or (match.re is _IPYTHON):
        while number < len(lines) and not _starts(lines[number]) and lines[number].strip():
            arrow = re.match(r"^-+> ?(\d+) ?(.*)$", lines[number])
            if arrow is not None:
                code = arrow[2].strip()
            number += 1
        return Entry(file, at, named.get("function"), code), number
    if number < len(lines) and lines[number].startswith(" ") and not _PYTHON.match(lines[number]):
        indent = len(lines[number]) - len(lines[number].lstrip())
        code = lines[number].strip()
        number += 1
        marks = _MARKS.match(lines[number]) if number < len(lines) else None
        if marks is not None:
            first = len(marks["indent"]) - indent
            span = (max(0, first), first + len(marks["marks"].rstrip()))
            number += 1
    return Entry(file, at, named.get("function"), code, span), number


class LoggedFrame(Frame):
    """An entry of a pasted traceback, read like a live frame: names lead to what the source says they must be."""

    def __init__(self, entry: Entry, source: Source, reading: Reading) -> None:
        self.entry = entry
        self._source = source
        self._reading = reading
        self._scope: Scope | None = None
        self.outer: LoggedFrame | None = None
        self.line = entry.line
        self.is_users = entry.is_users
        self.file = source.file
        name = (entry.function or "<module>").rpartition(".")[2]
        self.code: Any = types.SimpleNamespace(co_name=name, co_filename=source.file, co_varnames=(), co_argcount=0)
        self.frame: Any = types.SimpleNamespace(f_globals={}, f_code=self.code, f_back=None)

    @property
    def names(self) -> dict[str, Any]:  # type: ignore[override]
        return {}

    @property
    def source(self) -> Source:  # type: ignore[override]
        return self._source

    @property
    def function(self) -> Function | None:  # type: ignore[override]
        return self._source.function_of(self._source.statement(self.line)) if self.code.co_name != "<module>" else None

    @property
    def node(self) -> ast.AST | None:  # type: ignore[override]
        text = self._source.line(self.line)
        if self.entry.span is not None and self.entry.code and self.entry.code in text:
            start = text.index(self.entry.code)
            first, last = (len(text[: start + column].encode()) for column in self.entry.span)
            return self._source.running(self.line, (self.line, self.line, first, last)) or self._source.statement(
                self.line
            )
        return self._source.statement(self.line)

    def kind_of(self, name: str) -> str:
        function = self.function
        if function is None:
            return "global"
        if name in [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]:
            return "argument"
        return "local" if self._source.of_name(name, function) else "global"

    @property
    def scope(self) -> Scope:
        """The names that its line sees, with the call that led here."""
        if self._scope is None:
            function = self.function
            outer = None
            if self.outer is not None:
                call = _call_in(self.outer.node, self.code.co_name)
                outer = None if call is None else (call, self.outer.scope)
            self._scope = Scope(self._source, function, self.line, outer, self._source.class_of(function))
        return self._scope

    def value(self, node: ast.AST | None) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        return self._reading.value(node, self.scope)

    def look_up(self, name: str) -> Any:
        return self._reading.value(ast.Name(name), self.scope)


def _call_in(node: ast.AST | None, function: str) -> ast.Call | None:
    """The call of a line that led to a function: by its name, or the only one there."""
    calls = [part for part in ast.walk(head(node) or ast.Pass()) if isinstance(part, ast.Call)]
    for call in calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
        if name == function:
            return call
    return calls[0] if len(calls) == 1 or (calls and function in ("forward", "__call__")) else None


def _explain(found: Traceback, read: Message, root: Path) -> Diagnosis | None:
    from wherry.explain.postmortem import conclude, without_culprit

    away = next((device for device in read.devices if device not in ("cpu", "meta")), "cuda:0")
    home = read.found if read.found is not None and read.found != away else "cpu"
    reading = Reading(away, home)
    frames: list[Frame] = []
    for entry in found.entries:
        source = _source(entry, root)
        if entry.is_users and source is not None:
            frames.append(LoggedFrame(entry, source, reading))
    for outer, inner in itertools.pairwise(frames):
        assert isinstance(inner, LoggedFrame)
        assert isinstance(outer, LoggedFrame)
        inner.outer = outer
    error = f"{found.kind}: {found.text.strip().splitlines()[0] if found.text.strip() else ''}"
    if not frames:
        return without_culprit(read, error, _last_site(found), found.entries[-1].code if found.entries else "")
    scene = Scene(RuntimeError(found.text), read, frames[::-1], [], op=read.op, deadline=time.monotonic() + 1.0)
    complete(scene)
    return conclude(scene, error)


def _last_site(found: Traceback) -> Site | None:
    if not found.entries:
        return None
    entry = next((e for e in reversed(found.entries) if e.is_users), found.entries[-1])
    return Site(entry.file, entry.line, entry.function)


def _source(entry: Entry, root: Path) -> Source | None:
    """The source of an entry: the file it names, or one of that name below a folder, if it holds the line that is shown."""
    for path in _places(entry.file, root):
        source = source_of(str(path))
        if source.lines and (not entry.code or entry.code in source.line(entry.line)):
            return source
    if not entry.code:
        return None
    # The line itself is all there is.
    return Source(entry.file, [*["\n"] * (entry.line - 1), entry.code + "\n"])


def _places(file: str, root: Path) -> Iterator[Path]:
    path = Path(file).expanduser()
    if path.is_file():
        yield path
    parts = path.parts
    for position in range(len(parts)):
        below = root.joinpath(*parts[position:]) if not parts[position].endswith((":", "/")) else root
        if below.is_file():
            yield below
