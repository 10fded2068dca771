"""A diagnosis as a few lines of text: what, where, made where, why, fix.

Plain, or with colour for a terminal. The lines of the program are shown as they are, with the stray underlined and each
operand's device below it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from wherry.explain.diagnosis import Culprit, Diagnosis, Excerpt

_WIDTH = 100


def plain(diagnosis: Diagnosis, width: int = _WIDTH) -> str:
    """The text without colour, ending in no newline."""
    return "\n".join(line.plain.rstrip() for line in lines(diagnosis, width))


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print it, in colour where the console has any."""
    for line in lines(diagnosis, max(60, min(console.width, _WIDTH))):
        console.print(line, soft_wrap=True, highlight=False)


def lines(diagnosis: Diagnosis, width: int = _WIDTH) -> Iterator[Text]:
    """The lines, styled."""
    yield _title(diagnosis)
    numbers = [e.site.line for e in (diagnosis.failed, diagnosis.made) if e is not None]
    gutter = max((len(str(number)) for number in numbers), default=1)
    if diagnosis.failed is not None:
        yield _heading(f"failed at {diagnosis.failed.site.short}", diagnosis.failed)
        if diagnosis.failed.text.strip():
            yield from _excerpt(diagnosis.failed, gutter, width)
    made = diagnosis.made
    if made is not None and (diagnosis.failed is None or made.site != diagnosis.failed.site):
        other = diagnosis.failed is None or made.site.file != diagnosis.failed.site.file
        where = made.site.short if other else f"line {made.site.line}"
        yield _heading(f"made at {where}", made)
        yield from _excerpt(made, gutter, width)
    yield from _paragraph("why", diagnosis.why, width, "")
    yield from _paragraph("fix", diagnosis.fix, width, "green")
    if diagnosis.siblings:
        yield from _paragraph("next", _would_fail(diagnosis.siblings), width, "")


def _title(diagnosis: Diagnosis) -> Text:
    text = Text().append("wherry: ", style="dim")
    culprit = diagnosis.culprit
    if culprit is None:
        return text.append(diagnosis.error)
    text.append(culprit.name, style="bold red")
    return text.append(f" is {_described(culprit, diagnosis.op)}")


def _described(culprit: Culprit, op: str | None) -> str:
    place = f"on {culprit.device}" if culprit.device else "elsewhere"
    if culprit.kind == "missing-kernel":
        return f"{place}, which has no kernel for {op or 'this'}"
    if culprit.kind == "unsupported-sizes":
        return f"{place}, which does not pool it to these sizes"
    if culprit.kind == "unsupported-dtype":
        device = culprit.expected_device or "the device"
        if culprit.dtype in ("float32", "float16", "bfloat16"):  # it is what it becomes that is refused
            return f"{culprit.dtype}, and asked to be of a dtype that {device} does not have"
        return (
            f"{culprit.dtype}, which {device} does not have"
            if culprit.dtype
            else f"of a dtype that {device} does not have"
        )
    if culprit.kind == "absent-device":
        return "sent to a device that is not here"
    if culprit.expected_device and culprit.expected_device != culprit.device:
        return f"{place}, and should be on {culprit.expected_device}"
    return place


def _heading(words: str, excerpt: Excerpt) -> Text:
    function = excerpt.site.function
    inside = f", in {function}()" if function and not function.startswith("<") else ""
    return Text(f"  {words}{inside}", style="dim")


def _cropped(body: str, marks: list[tuple[int, int, str]], room: int) -> tuple[str, list[tuple[int, int, str]]]:
    """The part of a long line that the marks are in."""
    if len(body) <= room:
        return body, marks
    strong = next((mark for mark in marks if mark[2].endswith("!")), (0, 0, ""))
    start = max(0, min(strong[0] - room // 3, len(body) - room))
    before = "..." if start else ""
    shown = before + body[start + len(before) : start + room - 3] + ("..." if start + room < len(body) else "")
    kept = [
        (a - start, min(b - start, len(shown)), word)
        for a, b, word in marks
        if a - start >= len(before) and a - start < room - 3
    ]
    return shown, kept


def _excerpt(excerpt: Excerpt, gutter: int, width: int) -> Iterator[Text]:
    code = excerpt.text
    indent = len(code) - len(code.lstrip())
    body = code[indent:].rstrip()
    marks = sorted(
        (a - indent, min(b, len(code.rstrip())) - indent, word) for a, b, word in excerpt.marks if b > a >= indent
    )
    body, marks = _cropped(body, marks, width - gutter - 7)
    bar = Text().append(f"  {excerpt.site.line:>{gutter + 2}} | ", style="dim")
    line = Text(body.replace("\t", " "))
    for first, last, word in marks:
        line.stylize("bold red" if word.endswith("!") else "bold", first, last)
    yield bar + line
    if not marks:
        return
    blank = Text().append(" " * (gutter + 4) + " | ", style="dim")
    under, below = "", ""
    for first, last, word in marks:
        start, end = cell_len(body[:first]), cell_len(body[:last])
        strong = word.endswith("!")
        under = under.ljust(start) + ("^" if strong else "-") * max(1, end - start)
        shown = word.rstrip("!")
        if below and len(below) >= start:
            below += " "
        below = below.ljust(start) + shown
    yield blank + Text(under, style="red")
    yield blank + Text(below, style="red")


def _paragraph(label: str, sentence: str, width: int, style: str) -> Iterator[Text]:
    wrapped = textwrap.wrap(sentence, width - 7, break_long_words=False, break_on_hyphens=False) or [""]
    for number, part in enumerate(wrapped):
        yield Text().append(f"  {label if not number else '':<5}", style="bold").append(part, style=style)


def _would_fail(siblings: tuple[str, ...]) -> str:
    shown = ", ".join(siblings[:4])
    more = f" and {len(siblings) - 4} more" if len(siblings) > 4 else ""
    verb = "is" if len(siblings) == 1 else "are"
    return f"{shown}{more} {verb} there too, and would fail next."
