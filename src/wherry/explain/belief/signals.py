"""How a reading moves about: what leaves a function, a loop, or the whole program; and where it is going."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from wherry.explain.belief.values import Activation
from wherry.explain.source import Source


@dataclass(frozen=True, slots=True)
class Stop:
    """An entry of a traceback: where it was, and in which function."""

    source: Source
    line: int
    function: str


class Return(Exception):
    """A function of the program returns."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Jump(Exception):
    """`break` or `continue`."""

    def __init__(self, *, leaves: bool) -> None:
        self.leaves = leaves


class Raised(Exception):
    """The program raises."""


class Enough(Exception):
    """A generator has yielded as much as anybody looks at."""


class Spent(Exception):
    """The budget is used up."""


class Arrived(Exception):
    """The failure has been met: these operands cannot be together, in this expression."""

    def __init__(self, node: ast.AST, operands: list[tuple[str | None, Any]], snapshot: Snapshot) -> None:
        self.node = node
        self.operands = operands
        self.snapshot = snapshot


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The activations at the line that failed, the innermost first. The names in them are copies."""

    stack: list[Activation]
    exact: bool
