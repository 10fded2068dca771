"""The program's text: the expression that was running, and where a name or an attribute gets its value. Needs no torch.

A `Source` is one file, parsed once. It answers from text alone, so it serves a live exception and a pasted traceback
alike. A file that is missing, too large, not Python or in an unknown encoding is an empty source, which knows nothing.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

_MOST_BYTES = 400_000  # beyond that a parse takes too long for a post-mortem (about 40 ms for 100 kB)

_CELL = re.compile(r"<ipython-input-(\d+)-")

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a program."""

    file: str
    line: int
    function: str | None = None

    @property
    def short(self) -> str:
        """`train.py:12`, relative to the current folder when that is shorter; `In[3]:1` in a notebook."""
        cell = _CELL.match(self.file)
        if cell is not None:
            return f"In[{cell[1]}]:{self.line}"
        try:
            inside = self.file.startswith(os.getcwd() + os.sep)
            name = os.path.relpath(self.file) if inside else self.file
        except OSError:  # the current folder is gone
            name = self.file
        return f"{name}:{self.line}"

    def to_json(self) -> dict[str, object]:
        return {"file": self.file, "line": self.line}


@dataclass(frozen=True, slots=True)
class Assignment:
    """A statement that gives a name or an attribute its value.

    Attributes:
        node: The statement.
        value: The expression the value comes from, or None where it is only iterated over or passed in.
        how: "=", "for", "with", "register_buffer", "add_module", ...
        function: The function it stands in, or None at the top of a file.
    """

    node: ast.stmt
    value: ast.expr | None
    how: str
    function: Function | None


class Source:
    """One file of the program."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file = file
        self.lines = lines
        self.tree: ast.Module | None = None
        text = "".join(lines)
        if text and len(text) <= _MOST_BYTES:
            try:
                self.tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self.tree = None
        self._encoded = [line.encode("utf-8", "surrogatepass") for line in lines]
        self._parents: dict[ast.AST, ast.AST] = {}
        self._at: dict[tuple[object, ...], ast.AST] = {}
        self._all: list[ast.AST] = [] if self.tree is None else list(ast.walk(self.tree))
        for node in self._all:
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
            if isinstance(node, ast.expr | ast.stmt):
                # The outermost of those that take up the same text, such as a statement and its expression, comes first.
                place = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
                self._at.setdefault(place, node)

    def line(self, number: int) -> str:
        """One line, without its end; empty where there is none."""
        return self.lines[number - 1].rstrip("\r\n") if 0 < number <= len(self.lines) else ""

    def text(self, node: ast.AST) -> str:
        """An expression as it stands in the file, on one line."""
        line, end = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        first, last = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)
        if line is None or end is None or end > len(self._encoded):
            return ast.unparse(node)
        if line == end:
            return self._encoded[line - 1][first:last].decode("utf-8", "replace")
        try:
            return ast.unparse(node)
        except RecursionError:
            return self.line(line).strip()

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    # -- what was running

    def running(
        self, line: int, position: tuple[int | None, int | None, int | None, int | None] | None
    ) -> ast.AST | None:
        """The expression or statement that was running.

        Args:
            line: The line of the traceback.
            position: Line, last line, column and last column in bytes, where Python recorded them (3.11).
        """
        if self.tree is None:
            return None
        if position is not None and None not in position:
            node = self._at.get(tuple(position))
            if node is not None:
                return node.value if isinstance(node, ast.Expr) else node
        return self.statement(line)

    def statement(self, line: int) -> ast.stmt | None:
        """The innermost statement on a line."""
        best: ast.stmt | None = None
        for node in self._statements():
            if node.lineno <= line <= (node.end_lineno or node.lineno) and (best is None or node.lineno >= best.lineno):
                best = node
        return best

    def _statements(self) -> Iterator[ast.stmt]:
        if self.tree is not None:
            yield from (node for node in self._all if isinstance(node, ast.stmt))

    # -- functions and classes

    def function_of(self, node: ast.AST | None) -> Function | None:
        """The function a node stands in."""
        while node is not None:
            node = self.parent(node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return node
        return None

    def class_of(self, node: ast.AST | None) -> ast.ClassDef | None:
        """The class whose body, or whose method, a node stands in."""
        while node is not None:
            node = self.parent(node)
            if isinstance(node, ast.ClassDef):
                return node
        return None

    def function_at(self, code: CodeType) -> Function | None:
        """The function of a code object, or None for a module, a class body or a comprehension."""
        if self.tree is None:
            return None
        for node in self._all:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if first <= code.co_firstlineno <= node.lineno:
                    return node
            elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
                return node
        return None

    def classes(self, name: str) -> Iterator[ast.ClassDef]:
        """The classes of a name."""
        if self.tree is not None:
            yield from (n for n in self._all if isinstance(n, ast.ClassDef) and n.name == name)

    # -- assignments

    def of_name(self, name: str, within: Function | None, before: int | None = None) -> list[Assignment]:
        """The assignments to a local of a function, or to a global, in the order of their lines.

        Args:
            name: The variable.
            within: The function, or None for the top of the file.
            before: Only those that begin above this line.
        """
        if self.tree is None:
            return []
        body: ast.AST = self.tree if within is None else within
        found = []
        for node in ast.walk(body):
            if not isinstance(node, ast.stmt) or self.function_of(node) is not within:
                continue
            if within is None and self.class_of(node) is not None:
                continue
            if before is not None and node.lineno >= before:
                continue
            how_value = _binds(node, name)
            if how_value is not None:
                found.append(Assignment(node, how_value[1], how_value[0], within))
        return sorted(found, key=lambda assignment: assignment.node.lineno)

    def of_attribute(self, cls: ast.ClassDef, name: str) -> list[Assignment]:
        """The statements of a class's methods that set `self.name`, or register it."""
        return list(self._attributes(cls, name))

    def _attributes(self, body: ast.AST, name: str, receiver: str | None = "self") -> Iterator[Assignment]:
        for node in ast.walk(body):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target, value in _pairs(targets, node.value):
                    if (
                        isinstance(target, ast.Attribute)
                        and target.attr == name
                        and _is_receiver(target.value, receiver)
                    ):
                        yield Assignment(node, value, "=", self.function_of(node))
                    elif (
                        isinstance(target, ast.Attribute)
                        and target.attr == "data"
                        and isinstance(target.value, ast.Attribute)
                        and target.value.attr == name
                        and _is_receiver(target.value.value, receiver)
                    ):
                        yield Assignment(node, value, ".data=", self.function_of(node))
                    elif (
                        isinstance(target, ast.Subscript)
                        and isinstance(target.value, ast.Attribute)
                        and target.value.attr == name
                        and _is_receiver(target.value.value, receiver)
                    ):
                        yield Assignment(node, value, "[]=", self.function_of(node))
            elif isinstance(node, ast.Expr):
                call = node.value
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                    continue
                if call.func.attr in _REGISTERS and call.args and _constant(call.args[0]) == name:
                    value = call.args[1] if len(call.args) > 1 else None
                    for keyword in call.keywords:
                        if keyword.arg in ("tensor", "param", "module", "default", "value"):
                            value = keyword.value
                    yield Assignment(node, value, call.func.attr, self.function_of(node))
                elif (
                    call.func.attr in _ADDERS
                    and isinstance(call.func.value, ast.Attribute)
                    and call.func.value.attr == name
                    and call.args
                    and _is_receiver(call.func.value.value, receiver)
                ):
                    yield Assignment(node, call.args[-1], call.func.attr, self.function_of(node))

    def elsewhere(self, name: str) -> list[Assignment]:
        """Every statement of the file that sets an attribute of that name, on whatever object."""
        return [] if self.tree is None else list(self._attributes(self.tree, name, receiver=None))

    def calls(self, within: ast.AST | None, *names: str) -> Iterator[ast.Call]:
        """The method calls of some names in a function or a file: `x.to(...)`."""
        body = within or self.tree
        if body is not None:
            for node in ast.walk(body):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
                    yield node


_REGISTERS = (
    "register_buffer",
    "register_parameter",
    "add_module",
    "register_module",
    "setattr",
    "add_state",
    "__setattr__",
)
_ADDERS = ("append", "extend", "insert", "add", "update", "setdefault")


def _is_receiver(node: ast.expr, receiver: str | None) -> bool:
    return receiver is None or (isinstance(node, ast.Name) and node.id == receiver)


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _pairs(targets: list[ast.expr], value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Each single target with the expression it gets its value from: `a, b = c, d` is two."""
    for target in targets:
        if not isinstance(target, ast.Tuple | ast.List):
            yield target, value
        elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            for one, part in zip(target.elts, value.elts, strict=True):
                yield from _pairs([one], part)
        else:
            for one in target.elts:
                yield from _pairs([one.value if isinstance(one, ast.Starred) else one], value)


def _binds(node: ast.stmt, name: str) -> tuple[str, ast.expr | None] | None:
    """How a statement binds a name, and the expression the value comes from."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target, value in _pairs(targets, node.value):
            if isinstance(target, ast.Name) and target.id == name and value is not None:
                return "=", value
    elif isinstance(node, ast.For | ast.AsyncFor):
        for target, value in _pairs([node.target], node.iter):
            if isinstance(target, ast.Name) and target.id == name:
                return "for", value
    elif isinstance(node, ast.With | ast.AsyncWith):
        for with_item in node.items:
            if isinstance(with_item.optional_vars, ast.Name) and with_item.optional_vars.id == name:
                return "with", with_item.context_expr
    if not isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.While | ast.If | ast.With
    ):
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr) and inner.target.id == name:
                return "=", inner.value
    return None


@lru_cache(maxsize=64)
def _parsed(file: str, lines: tuple[str, ...]) -> Source:
    return Source(file, list(lines))


def source_of(file: str, module_globals: dict[str, object] | None = None) -> Source:
    """The source of a file, from the disk, a notebook, or an archive; an empty one where it cannot be read."""
    try:
        lines = linecache.getlines(file, module_globals)
    except Exception:  # noqa: BLE001 - a loader, an encoding, a disk: whatever it is, there is no source
        lines = []
    return _parsed(file, tuple(lines))


def shortened(text: str) -> str:
    """An expression short enough to be a name."""
    text = " ".join(text.split())
    return text if len(text) <= 100 else text[:97] + "..."
