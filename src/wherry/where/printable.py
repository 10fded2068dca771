"""Text from a file or a program, safe to print: what moves a cursor, colours, breaks a line or hides is written as its escape.

A checkpoint that somebody downloaded names its tensors, its metadata and its shards as it likes, and a terminal obeys what it
is sent. Used where text is shown; the values of an inventory stay as they are.
"""

from __future__ import annotations

import json
import re


def printable(text: str) -> str:
    r"""The same text with every character escaped, as Python writes it, that is not for showing.

    >>> print(printable("a\x1b[2J\nb"))
    a\x1b[2J\nb
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def printable_json(value: object) -> str:
    """A value as JSON, of which each character can be shown: the same value when it is read."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _HIDDEN.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


_HIDDEN = re.compile(r"[^\n -~]")  # line breaks are the indentation's: those of strings are escaped already
