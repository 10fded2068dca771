"""A frame of a traceback, read without running the program: the values behind the expressions that stand in it.

`Frame.value(node)` evaluates an expression as far as that needs no code of the program: names, attributes in instance
dictionaries, items of builtin containers. `Frame.leaves(node)` gives the parts of a larger expression that can be.
"""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

from wherry import tree
from wherry.explain.source import Function, Site, Source, source_of
from wherry.tree import MISSING

_MOVES = ("to", "cuda", "cpu", "xpu", "mps", "type", "to_device", "numpy", "item", "tolist")
NO_TENSOR = (
    "shape",
    "device",
    "dtype",
    "ndim",
    "size",
    "dim",
    "numel",
    "stride",
    "is_cuda",
    "requires_grad",
    "layout",
    "names",
)
"""Attributes and methods whose answer is no tensor."""
_ASKS = ("len", "int", "float", "str", "range", "isinstance", "type", "id", "repr")


class Frame:
    """One entry of a traceback.

    Attributes:
        frame: The interpreter's frame.
        line: The line it was at.
        is_users: Whether its code is the user's own.
    """

    def __init__(self, frame: types.FrameType, line: int, instruction: int, *, is_users: bool) -> None:
        self.frame = frame
        self.line = line
        self.is_users = is_users
        self.code = frame.f_code
        self.file = self.code.co_filename
        self._instruction = instruction

    @property
    def site(self) -> Site:
        return Site(self.file, self.line, self.code.co_name)

    @cached_property
    def names(self) -> dict[str, Any]:
        """Its locals and captured variables. A copy: nothing that is read here changes the frame."""
        return dict(islice(self.frame.f_locals.items(), 2_000))

    @cached_property
    def source(self) -> Source:
        return source_of(self.file, self.frame.f_globals)

    @cached_property
    def function(self) -> Function | None:
        return self.source.function_at(self.code)

    @cached_property
    def node(self) -> ast.AST | None:
        """The expression or statement that was running."""
        return self.source.running(self.line, position_of(self.code, self._instruction))

    def kind_of(self, name: str) -> str:
        """What a name is here: "argument", "local", "closure", "global"."""
        code = self.code
        if name in code.co_freevars:
            return "closure"
        if name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            return "argument"
        if name in self.names and code.co_name != "<module>":
            return "local"
        return "global"

    def look_up(self, name: str) -> Any:
        """The value of a name."""
        if name in self.names:
            return self.names[name]
        found = self.frame.f_globals
        if type(found) is dict and name in found:
            return found[name]
        return vars(builtins).get(name, MISSING)

    def value(self, node: ast.AST | None) -> Any:
        """The value of an expression, as far as it can be had without running code; else `MISSING`."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.look_up(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._item(node)
        if isinstance(node, ast.NamedExpr | ast.Starred | ast.Await):
            return self.value(node.value)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.value(node.operand)
            return -number if type(number) in (int, float) else MISSING
        return MISSING

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if owner is MISSING:
            return MISSING
        if tree.is_tensor(owner):
            if node.attr == "grad":
                from wherry.explain.tensors import gradient

                found = gradient(owner)
                return MISSING if found is None else found
            if node.attr in ("data", "T", "mT", "H"):
                return MISSING
            return tree.instance_dict(owner).get(node.attr, MISSING)
        found = tree.attribute(owner, node.attr)
        # What the class binds is the value only where it is plain: a property or a method would run.
        if found is tree.class_attribute(owner, node.attr) and not (
            tree.is_a(owner, types.ModuleType) or tree.is_a(owner, type)
        ):
            plain = not hasattr(type(found), "__get__") or tree.is_tensor(found)
            return found if plain else MISSING
        return found

    def _item(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if owner is MISSING or tree.is_tensor(owner):
            return MISSING
        key = self.value(node.slice)
        if tree.is_a(key, str) or tree.is_a(key, int):
            return tree.item(owner, key)
        if key is not MISSING and tree.is_a(owner, dict) and tree.is_tensor(key):
            for have, value in islice(dict.items(owner), 10_000):
                if have is key:
                    return value
        if type(key) is tuple and tree.is_a(owner, dict):
            for have, value in islice(dict.items(owner), 10_000):
                if type(have) is tuple and _same_plain(have, key):
                    return value
        return MISSING

    def _call(self, node: ast.Call) -> Any:
        """Look-ups that are written as calls: getattr(x, "name"), d.get("key")."""
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2:
            name = self._text(node.args[1])
            owner = self.value(node.args[0])
            if name is not None and owner is not MISSING and not tree.is_tensor(owner):
                return tree.attribute(owner, name)
        elif isinstance(node.func, ast.Attribute) and node.args and not node.keywords:
            owner = self.value(node.func.value)
            if node.func.attr == "get" and tree.is_a(owner, dict):
                return tree.item(owner, self.value(node.args[0]))
            if node.func.attr in ("get_buffer", "get_parameter", "get_submodule") and tree.is_module(owner):
                name = self._text(node.args[0])
                return MISSING if name is None or "." in name else tree.attribute(owner, name)
        return MISSING

    def _text(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.JoinedStr):
            parts = [self._text(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values]
            return None if None in parts else "".join(part for part in parts if part is not None)
        value = self.value(node)
        return str(value) if type(value) in (str, int) else None

    def leaves(self, node: ast.AST | None, *, through_moves: bool = False) -> Iterator[tuple[ast.expr, Any]]:
        """The largest parts of an expression whose values can be had, in the order they are written.

        What is only asked for its shape or device is left out, and so is what a `.to` or `.cpu` moves on the way.
        """
        if node is None:
            return
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return  # a frame of its own
        if isinstance(node, ast.Attribute) and node.attr in NO_TENSOR:
            return
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                name = node.func.attr
                if name in NO_TENSOR or (name in _MOVES and not through_moves):
                    return
                receiver = self.value(node.func.value)
                if receiver is MISSING or not tree.is_namespace(receiver):
                    yield from self.leaves(node.func.value, through_moves=through_moves)
            else:
                if isinstance(node.func, ast.Name) and node.func.id in _ASKS:
                    return
                called = self.value(node.func)
                if called is not MISSING and isinstance(node.func, ast.expr):
                    yield node.func, called
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from self.leaves(argument, through_moves=through_moves)
            return
        if isinstance(node, ast.expr):
            value = self.value(node)
            if value is not MISSING:
                if not isinstance(node, ast.Constant):
                    yield node, value
                return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr | ast.keyword | ast.stmt | ast.Slice):
                yield from self.leaves(child, through_moves=through_moves)


def _same_plain(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(
        x is y or (type(x) is type(y) and type(x) in (str, int, bool) and x == y) for x, y in zip(a, b, strict=True)
    )


def position_of(code: types.CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None] | None:
    """Line, last line, column and last column of an instruction, where Python recorded them (since 3.11)."""
    positions = getattr(code, "co_positions", None)
    if positions is None or instruction < 0:
        return None
    return next(islice(positions(), instruction // 2, None), None)
