"""What the caller calls the object that is moved: the first argument of the call, as it is written.

It is read from the source of the line that runs, not from the frame's variables: until Python 3.13, whoever asks a frame for
its variables keeps them alive until the function returns, model included.
"""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap
from collections.abc import Iterator

from wherry import callsite

_MOST_LINES = 12  # of one statement


def name_of(default: str) -> str:
    """The caller's expression for the object, where it is a plain one: "batch", "self.model", "states[0]"."""
    frame = callsite.user_frame(sys._getframe(1))  # noqa: SLF001 - which line is running
    if frame is None:
        return default
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    at = frame.f_lineno - 1
    for start in (at, at - 1, at - 2):  # the line is that of the call, and the statement may begin before it
        for stop in range(at + 1, min(at + _MOST_LINES, len(lines)) + 1):
            try:
                tree = ast.parse(_whole(lines[max(start, 0) : stop]))
            except (SyntaxError, ValueError):
                continue
            first_arguments = list(_first_arguments(tree))
            if len(first_arguments) == 1 and isinstance(first_arguments[0], ast.Name | ast.Attribute | ast.Subscript):
                return ast.unparse(first_arguments[0])
            if first_arguments:
                return default  # several, or one that is no plain expression
    return default


def _whole(lines: list[str]) -> str:
    """Some lines as a statement of its own: the head of a block gets a body."""
    text = textwrap.dedent("".join(lines)).strip()
    return f"{text} pass" if text.endswith(":") else text.removeprefix("return ")


def _first_arguments(tree: ast.AST) -> Iterator[ast.expr]:
    """What the calls of `move` in a statement are handed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if called == "move" and node.args:
                yield node.args[0]
            elif called == "move":
                yield from (keyword.value for keyword in node.keywords if keyword.arg == "obj")
