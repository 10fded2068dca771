"""A pasted log or traceback: what failed, where, and, from the sources that can be found, which tensor did not get moved.

Needs no torch and runs nothing. `explain_log(text)` answers with a `Diagnosis`; `tracebacks(text)` is the parser alone. It
knows the tracebacks of Python (with and without the marks below a line, chained, in an exception group), of IPython and of
pytest, of TorchScript, what `torch.compile` says of "user code", and those that another process sent home as text. Before
that, what a launcher or a logger put before each line is taken off, and the lines of several ranks are set apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from wherry.explain import message
from wherry.explain.diagnosis import Diagnosis
from wherry.explain.message import Message

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
_STREAM = re.compile(r"^(\[(?:rank|default)?\d+\]:|\([\w.<>=: -]*?(?:pid|rank)=?\s?\d+[^)]*\)) ?")
_BEGINS = re.compile(r"(?:Original )?Traceback \(most recent call last\):|Traceback of TorchScript[^\n]*:$")
_PYTHON = re.compile(r'^\s*File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,9})(?:, in (?P<function>.{1,300}))?\s*$')
_CELL = re.compile(
    r"^(?:Cell In|Input In) ?\[(?P<cell>\d*)\],? (?:line (?P<line>\d{1,9})(?:, in (?P<function>.+))?|in (?P<scope>.+))$"
)
_IPYTHON = re.compile(
    r"^(?:File )?(?P<file>[^\s:]{1,500}\.py):(?P<line>\d{1,9}),? in (?P<function>[^\n]{1,300})$"  # since 8
    r"|^(?:File )?\[?(?P<old><ipython-input[^>\n]{1,100}>|[~/\w.-]{1,500}\.py)\]?(?:\([^)\n]*\))? in (?P<called>[^\n]{1,300})$"
)
_SHOWN = re.compile(r"^-+> ?(?:\[)?(?P<line>\d{1,9})(?:\](?:\([^)\n]*\)|))? ?(?P<code>.*)$")
_CONTEXT = re.compile(r"^\s+(?:\[)?\d{1,9}(?:\]|\b)")
_PYTEST = re.compile(
    r"^(?P<file>[\w./\\:-]{1,500}\.py):(?P<line>\d{1,9}): ?(?:in (?P<function>\S+)|(?P<error>[\w.]*(?:Error|Exception|Failed)))?$"
)
_ERROR = re.compile(
    r"^(?P<kind>(?:\w+\.){0,8}\w{0,80}(?:Error|Exception|Interrupt|Exit|Failed|Errors))(?:: ?(?P<text>.*))?$"
)
_MARKS = re.compile(r"^(?P<indent>\s*)(?P<marks>[~^]+[~^ ]*?)\s*(?P<here><--- HERE)?$")
_LIBRARY = (
    "site-packages",
    "dist-packages",
    "/lib/python3",
    "\\lib\\",
    "/torch/nn/modules/",
    "/wherry/rehearse/",
    "<frozen ",
    "<string>",
)
_ERROR_WORDS = ("Error", "Exception", "Interrupt", "Exit", "Failed")
_PLAIN_WORDS = (
    "xpected",
    "should be",
    "must be",
    "annot",
    "an't",
    "found at least",
    "does not have",
    "ot compiled",
    "Placeholder",
)
_START_WORDS = (*_ERROR_WORDS, 'File "', ".py", " In", "Traceback", "from user code", "exception", "<ipython")
"""What must stand in a line for the patterns to be worth trying: a log is long, and most of it is something else."""
_LONGEST = 2_000  # characters of a line that are read


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a traceback.

    Attributes:
        file, line, function: Where; the function is None where the log does not say.
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
        return not any(part in self.file or part in self.file.lower() for part in _LIBRARY)


@dataclass(frozen=True, slots=True)
class Traceback:
    """One traceback of a log.

    Attributes:
        entries: The outermost first.
        kind, text: The exception's type and text.
        chained: Whether it is the consequence of the one before it.
    """

    entries: tuple[Entry, ...]
    kind: str
    text: str
    chained: bool = False

    @property
    def read(self) -> Message | None:
        """What the error says; None where it is not about devices."""
        # torch.compile has a RuntimeError of its own, which repeats the text of the real one.
        return message.read("RuntimeError" if self.kind.endswith("RuntimeError") else self.kind, self.text)

    @property
    def is_users(self) -> bool:
        """Whether an entry is in the program's own files."""
        return any(entry.is_users for entry in self.entries)


def explain_log(text: str, root: Path | None = None) -> Diagnosis | None:
    """Explain the device error in a log.

    Args:
        text: The log: any text with a traceback in it, or the text of the error alone.
        root: The folder to look for sources in that are not where the log says; by default the current one.

    Returns:
        The diagnosis of the last device error in it, or None where there is none. What the sources do not tell is left out.
    """
    from wherry.explain.logged import explain_traceback

    found = last_device_error(tracebacks(text))
    if found is None:
        return None
    read = found.read
    assert read is not None
    return explain_traceback(found, read, root or Path.cwd())


def last_device_error(found: list[Traceback]) -> Traceback | None:
    """The one to explain: the last, or rather the one it is the consequence of, where that says the same."""
    about = [number for number, one in enumerate(found) if one.read is not None]
    if not about:
        return None
    number = next((n for n in reversed(about) if found[n].is_users), about[-1])
    while found[number].chained and number - 1 in about and (found[number - 1].is_users or not found[number].is_users):
        number -= 1
    return found[number]


def tracebacks(text: str) -> list[Traceback]:
    """The tracebacks of a log, in order; those of each rank or worker together. What is only an error's text is one, too."""
    found: list[Traceback] = []
    for lines in _streams(text):
        found += _Reader(lines).read()
    return found


def _streams(text: str) -> Iterator[list[str]]:
    """The lines of each process, without what was put before them."""
    streams: dict[str, list[str]] = {}
    for raw in text.replace("\r\n", "\n").split("\n"):
        line = _ANSI.sub("", raw[:_LONGEST]).rpartition("\r")[2]
        of = _STREAM.match(line)
        streams.setdefault(of[1] if of is not None else "", []).append(line[of.end() :] if of is not None else line)
    for lines in streams.values():
        yield list(_without_prefix(lines))


def _without_prefix(lines: list[str]) -> Iterator[str]:
    """Takes off what stands before "Traceback", such as a time, from that line and those like it."""
    shape: re.Pattern[str] | None = None
    for line in lines:
        begins = _BEGINS.search(line)
        if begins is not None:
            prefix = line[: begins.start()]
            if prefix.endswith(":") or not prefix.strip():
                prefix = ""
            shape = re.compile(re.sub(r"\d+", r"\\d+", re.escape(prefix))) if 0 < len(prefix) <= 200 else None
            yield line[begins.start() :]
            continue
        match = shape.match(line) if shape is not None else None
        yield line[match.end() :] if match is not None else line


class _Reader:
    """Goes through the lines of one process."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0
        self.found: list[Traceback] = []
        self.entries: list[Entry] = []
        self.chained = False
        self.said: tuple[str, str] | None = None  # pytest: the error stands before the line it happened at
        self.inside = False  # between "Traceback" and its error

    def read(self) -> list[Traceback]:
        while self.at < len(self.lines):
            before = self.at
            self._line(self.lines[self.at])
            self.at = max(self.at, before + 1)
        return self.found

    def _line(self, line: str) -> None:
        text = line.lstrip(" |")
        if not text:
            return
        if _BEGINS.search(text):
            self.inside = True
            if not self.found or "TorchScript" not in text:
                self.entries = []
        elif "exception was the direct cause" in text or "During handling of the above exception" in text:
            self.chained = True
        elif text.startswith("from user code:"):
            self._user_code()
        elif line.startswith("E  "):
            self._of_pytest(line[1:].strip())
        elif not self._entry(line):
            self._error(text.strip())

    # -- errors

    def _error(self, text: str) -> None:
        error = _ERROR.match(text) if any(word in text for word in _ERROR_WORDS) else None
        if error is None:
            if not self.inside and not self.entries and _is_plain(text):
                self.found.append(Traceback((), "RuntimeError", text))
            return
        self.at += 1
        said = [error["text"] or ""]
        while self.at < len(self.lines) and len(said) < 40:
            more = self.lines[self.at]
            if not more.strip(" |") or _starts(more) or more.startswith(("E  ", "    +--")):
                break
            said.append(more)
            self.at += 1
        self._finish(error["kind"], "\n".join(said))

    def _finish(self, kind: str, text: str) -> None:
        found = Traceback(tuple(self.entries), kind, text, self.chained)
        if self.entries or found.read is not None:
            self.found.append(found)
        self.entries, self.inside, self.chained = [], False, False

    def _of_pytest(self, text: str) -> None:
        error = _ERROR.match(text)
        if error is not None and self.said is None:
            self.said = (error["kind"], error["text"] or "")

    def _user_code(self) -> None:
        """`torch.compile`: where the program was, said after the error."""
        self.at += 1
        self.entries = []
        while self.at < len(self.lines) and self._entry(self.lines[self.at]):
            pass
        entries, self.entries = self.entries, []
        if self.found and entries:
            last = self.found[-1]
            outer = [entry for entry in last.entries if entry.is_users]
            self.found[-1] = replace(last, entries=(*outer, *entries))

    # -- entries

    def _entry(self, line: str) -> bool:
        """Reads an entry, where one begins here."""
        text = line.strip(" |")
        for hint, pattern, reader in (
            ('File "', _PYTHON, self._python), (" In", _CELL, self._cell), (".py", _IPYTHON, self._ipython),
            ("<ipython-input", _IPYTHON, self._ipython), (".py:", _PYTEST, self._pytest),
        ):  # fmt: skip
            match = pattern.match(text) if hint in text else None
            if match is not None:
                return reader(match)
        return False

    def _python(self, match: re.Match[str]) -> bool:
        self.at += 1
        shown: list[str] = []
        while self.at < len(self.lines) and len(shown) < 40:
            more = self.lines[self.at]
            if not more.startswith((" ", "|")) or _PYTHON.match(more.lstrip(" |")) or _BEGINS.search(more):
                break
            shown.append(more.lstrip("|") if more.startswith("|") else more)
            self.at += 1
        code, span = _code(shown)
        self.entries.append(Entry(match["file"], int(match["line"]), match["function"], code, span))
        return True

    def _cell(self, match: re.Match[str]) -> bool:
        line, code = self._context()
        file = f"<ipython-input-{match['cell']}-cell>"
        self.entries.append(Entry(file, int(match["line"] or line or 1), _bare(match["function"]), code))
        return True

    def _ipython(self, match: re.Match[str]) -> bool:
        line, code = self._context()
        file = match["file"] or match["old"]
        self.entries.append(
            Entry(file, int(match["line"] or line or 1), _bare(match["function"] or match["called"]), code)
        )
        return True

    def _context(self) -> tuple[int, str]:
        """The line that the arrow points at, of those that IPython shows around it."""
        self.at += 1
        line, code = 0, ""
        while self.at < len(self.lines):
            more = self.lines[self.at]
            arrow = _SHOWN.match(more)
            if arrow is not None:
                line, code = int(arrow["line"]), arrow["code"].strip()
            elif not _CONTEXT.match(more) and (not more.strip() or _starts(more)):
                break
            self.at += 1
        return line, code

    def _pytest(self, match: re.Match[str]) -> bool:
        shown = next((one for one in reversed(self.lines[max(0, self.at - 60) : self.at]) if one.startswith(">")), "")
        below = self.lines[self.at + 1] if match["function"] and self.at + 1 < len(self.lines) else ""
        code = (below if below.startswith("    ") else shown[1:] if not match["function"] else "").strip()
        self.at += 1
        self.entries.append(Entry(match["file"], int(match["line"]), _bare(match["function"]), code))
        if match["error"] and self.said is not None:
            self._finish(*self.said)
            self.said = None
        return True


def _is_plain(text: str) -> bool:
    """Whether a line is the text of a device error, as somebody copies it out of a window."""
    if not any(word in text for word in _PLAIN_WORDS):
        return False
    read = message.read("RuntimeError", text)
    return read is not None and (read.argument is not None or read.found is not None or "Expected all tensors" in text)


def _starts(line: str) -> bool:
    text = line.lstrip(" |")
    if not any(word in text for word in _START_WORDS):
        return False
    return bool(
        _PYTHON.match(text) or _ERROR.match(text) or _BEGINS.search(text) or _CELL.match(text) or _IPYTHON.match(text)
        or _PYTEST.match(text) or text.startswith(("from user code:", "The above exception", "During handling"))
    )  # fmt: skip


def _bare(function: str | None) -> str | None:
    """A function's name as Python says it: IPython shows its class and its arguments, too."""
    if function is None or function.startswith("<"):
        return None if function is None or function.startswith("<cell") else function.partition("(")[0]
    return function.partition("(")[0].rpartition(".")[2] or None


def _code(shown: list[str]) -> tuple[str, tuple[int, int] | None]:
    """The line of source among those below an entry, and what the marks underline."""
    for number, line in enumerate(shown):
        marks = _MARKS.match(line)
        if marks is not None and number and marks["marks"].strip():
            above = shown[number - 1]
            indent = len(above) - len(above.lstrip())
            first = len(marks["indent"]) - indent
            return above.strip(), (max(0, first), first + len(marks["marks"].rstrip()))
    return (shown[0].strip() if shown else ""), None
