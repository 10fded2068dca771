"""Is this factory op the program's own, or a helper that a C++ composite made?

Factories say so themselves (see `mode`), except the legacy constructors: `torch.Tensor(2, 3)`, `torch.FloatTensor(4)` and
`x.new(5)` allocate without the marks of a factory. This op is rare, so it can afford to look at the line that is
running: the callee's name in the bytecode's source position, looked up in the frame without running anything.
"""

from __future__ import annotations

import ast
import linecache
import sys
from types import CodeType, FrameType

import torch

_TENSOR_TYPE = type(torch.FloatTensor)  # the metatype of torch.FloatTensor and its kin

_answers: dict[tuple[CodeType, int], ast.expr | None] = {}


def is_explicit_call() -> bool:
    """Whether the innermost Python frame outside of wherry is calling a legacy tensor constructor."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("wherry.rehearse"):
        frame = frame.f_back
    if frame is None:
        return False
    callee = _callee(frame)
    if callee is None:
        return False
    if isinstance(callee, ast.Attribute) and callee.attr == "new":
        return True
    value = _look_up(callee, frame)
    return isinstance(value, _TENSOR_TYPE) or (isinstance(value, type) and issubclass(value, torch.Tensor))


def _callee(frame: FrameType) -> ast.expr | None:
    """What the running instruction calls, as source."""
    key = (frame.f_code, frame.f_lasti)
    if key not in _answers:
        _answers[key] = _parse(frame)
    return _answers[key]


def _parse(frame: FrameType) -> ast.expr | None:
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    text = line.strip()
    if hasattr(frame.f_code, "co_positions"):
        positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        first, last, start, end = positions
        if first is not None and first == last and start is not None and end is not None:
            text = line.encode()[start:end].decode(errors="replace")
    for candidate in (text, text.rstrip(":") + ": pass"):
        try:
            tree = ast.parse(candidate)
        except (SyntaxError, ValueError):
            continue
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        return calls[0].func if calls else None
    return None


def _look_up(node: ast.expr, frame: FrameType) -> object:
    """The value of a dotted name, without running properties: instance and module dictionaries only."""
    if isinstance(node, ast.Name):
        for scope in (frame.f_locals, frame.f_globals, frame.f_builtins):
            if node.id in scope:
                return scope[node.id]
        return None
    if isinstance(node, ast.Attribute):
        owner = _look_up(node.value, frame)
        return getattr(owner, "__dict__", {}).get(node.attr)
    return None
