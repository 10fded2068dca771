"""Which call is the program running right now? Asked on rare ops only, where an operator does not tell enough.

Three questions need it. Is an allocation the program's own, through a legacy constructor (`torch.Tensor(2, 3)`,
`x.new(5)`), or a helper that a C++ composite made? Where does a helper belong that never meets an operand? And is a
decomposition wanted for its values only?

The answer is read from the innermost Python frame: the call at its current instruction, as an expression, whose names
are looked up in the frame's dictionaries. Nothing of the program is run for it: no properties, no `__getattr__`.
"""

from __future__ import annotations

import ast
import linecache
import sys
from dataclasses import dataclass
from types import CodeType, FrameType

import torch
from torch import Tensor

_TENSOR_TYPE = type(torch.FloatTensor)  # the metatype of torch.FloatTensor and its kin
_UNKNOWN = object()

_expressions: dict[tuple[CodeType, int], ast.Call | None] = {}


@dataclass(frozen=True, slots=True)
class Call:
    """A running call: what is called, and the first tensor among its arguments (the object of a method comes first)."""

    callee: object
    method: str | None
    operand: Tensor | None

    @property
    def name(self) -> str | None:
        """The `__name__` of what is called, "linalg_svdvals", or as it is written where it cannot be looked up."""
        return getattr(self.callee, "__name__", self.method) if callable(self.callee) else self.method

    @property
    def constructs_tensor(self) -> bool:
        """Whether this is a legacy constructor."""
        if self.method == "new":
            return True
        return isinstance(self.callee, _TENSOR_TYPE) or (
            isinstance(self.callee, type) and issubclass(self.callee, Tensor)
        )


_NO_CALL = Call(None, None, None)


def running_call() -> Call:
    """The call that the innermost Python frame outside of wherry is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("wherry."):
        frame = frame.f_back
    if frame is None:
        return _NO_CALL
    key = (frame.f_code, frame.f_lasti)
    if key not in _expressions:
        _expressions[key] = _parse(frame)
    node = _expressions[key]
    if node is None:
        return _NO_CALL
    method = node.func.attr if isinstance(node.func, ast.Attribute) else None
    operands = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    operands += [a.value if isinstance(a, ast.Starred) else a for a in node.args]
    operands += [k.value for k in node.keywords]
    found = (_first_tensor(_look_up(operand, frame)) for operand in operands)
    return Call(_look_up(node.func, frame), method, next((t for t in found if t is not None), None))


def _parse(frame: FrameType) -> ast.Call | None:
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals)
    text = line.strip()
    if hasattr(code, "co_positions"):
        first, last, start, end = list(code.co_positions())[frame.f_lasti // 2]
        if first is not None and last is not None and start is not None and end is not None:
            lines = [linecache.getline(code.co_filename, n, frame.f_globals).encode() for n in range(first, last + 1)]
            if lines and all(lines):
                lines[-1] = lines[-1][:end]  # before the first is cut, which may be the same one
                lines[0] = lines[0][start:]
                text = b"".join(lines).decode(errors="replace")
    for candidate in (text, text.rstrip(":") + ": pass"):
        try:
            tree = ast.parse(candidate)
        except (SyntaxError, ValueError):
            continue
        return next((node for node in ast.walk(tree) if isinstance(node, ast.Call)), None)
    return None


def _look_up(node: ast.expr, frame: FrameType) -> object:
    """The value of a dotted name, read from dictionaries only."""
    if isinstance(node, ast.Name):
        for scope in (frame.f_locals, frame.f_globals, frame.f_builtins):
            if node.id in scope:
                return scope[node.id]
    elif isinstance(node, ast.Attribute):
        owner = _look_up(node.value, frame)
        if owner is not _UNKNOWN:
            try:
                own = object.__getattribute__(owner, "__dict__")
            except AttributeError:  # no dictionary: slots, C objects
                own = {}
            if node.attr in own:
                return own[node.attr]
            for registered in ("_parameters", "_buffers", "_modules") if isinstance(owner, torch.nn.Module) else ():
                if node.attr in own.get(registered, {}):
                    return own[registered][node.attr]
    return _UNKNOWN


def _first_tensor(value: object) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, list | tuple):
        return next((item for item in value if isinstance(item, Tensor)), None)
    if type(value) is dict:
        return next((item for item in value.values() if isinstance(item, Tensor)), None)
    return None
