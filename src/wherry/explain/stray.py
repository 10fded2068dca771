"""The operand at fault, as a value, and the ways to find what it is called and what it was computed from.

`suspects` and `lacked` decide which one it is; `origin` and the causes read it.
"""

from __future__ import annotations

import ast
import types
from dataclasses import dataclass
from typing import Any

from wherry import tree
from wherry.explain.frames import Frame, position_of
from wherry.explain.idioms import moves
from wherry.explain.scene import Operand, Scene, inside_library
from wherry.explain.source import shortened, source_of
from wherry.explain.tensors import Facts, facts_of, is_operand
from wherry.tree import MISSING, Found


@dataclass(slots=True)
class Stray:
    """The operand at fault.

    Attributes:
        name: How the user writes it.
        device: Where it is, or None where that is not known.
        expected: Where it should be, or None.
        frame: The frame in which the name means it.
        value: The object, or `MISSING` where only its expression is known.
        facts: What is known of it, or None.
        found: The path to it from something named, or None.
        node: The expression that names it in the failing line, or None.
        argument: What the op calls it.
        via: The name in the failing line, where that is something computed from the stray.
    """

    name: str
    device: str | None
    expected: str | None
    frame: Frame
    value: Any = MISSING
    facts: Facts | None = None
    found: Found | None = None
    node: ast.AST | None = None
    argument: str | None = None
    via: str | None = None


def stray_of(operand: Operand, found: str | None, expected: str | None, scene: Scene) -> Stray | None:
    if operand.name is None or operand.frame is None:
        return None
    node = None
    if operand.direct:
        node = next(
            (
                n
                for n, v in scene.leaves()
                if operand.found is not None and v is (operand.found.owners or (operand.found.value,))[0]
            ),
            None,
        )
    return Stray(
        operand.name,
        operand.facts.device or found,
        expected,
        operand.frame,
        operand.value,
        operand.facts,
        operand.found,
        node,
        operand.argument,
    )


def making_of(facts: Facts, scene: Scene) -> tuple[ast.AST | None, Frame | None]:
    """The expression that made a storage, as a rehearsal recorded it, and its frame where that is still running."""
    if facts.code is None:
        return None, None
    node = facts.node
    if node is None:
        source = source_of(facts.code.co_filename)
        line = facts.site.line if facts.site is not None else 0
        node = source.running(line, position_of(facts.code, facts.instruction))
    frame = next((f for f in scene.frames if f.code is facts.code), None)
    return node, frame


def computed_for(scene: Scene, operand: Operand, found: str | None, expected: str | None) -> Stray | None:
    """A temporary: the stray is what it was computed from, else the expression that made it."""
    node, frame = making_of(operand.facts, scene)
    if frame is None or node is None:
        return None
    inside = scene.node is not None and any(part is node for part in ast.walk(scene.node))
    if node is scene.node:
        given = given_for(operand.argument, scene)
        if given is not None and given.device == found:
            given.expected = expected
            return given
    stray = from_leaves(node, frame, found, expected, scene)
    if stray is not None:
        return stray
    if node is scene.node:
        # Made inside of the very call that failed: from something that the library was given, or holds.
        for other in inside_library(scene, found):
            if other.facts.dim > 0 or operand.facts.dim == 0:
                return stray_of(other, found, expected, scene)
    if not inside or not isinstance(node, ast.expr):
        return None
    return Stray(
        shortened(frame.source.text(node)), operand.facts.device, expected, frame, operand.value, operand.facts, node=node,
        argument=operand.argument,
    )  # fmt: skip


def given_for(argument: str | None, scene: Scene) -> Stray | None:
    """What the failing call passes for an argument of that name, where the function called is written in Python."""
    call, here = scene.node, scene.here
    if argument is None or not isinstance(call, ast.Call):
        return None
    node = next((keyword.value for keyword in call.keywords if keyword.arg == argument), None)
    called = here.value(call.func)
    if node is None and type(called) is types.FunctionType:
        names = called.__code__.co_varnames[: called.__code__.co_argcount]
        position = names.index(argument) if argument in names else len(call.args)
        node = call.args[position] if position < len(call.args) else None
    value = here.value(node)
    if node is None or value is MISSING or not is_operand(value):
        return None
    facts, text = facts_of(value), here.source.text(node)
    return Stray(text, facts.device, None, here, value, facts, Found(value, text, (), ()), node, argument)


def from_leaves(node: ast.AST, frame: Frame, found: str | None, expected: str | None, scene: Scene) -> Stray | None:
    """The first named part of an expression that is where the stray is."""
    parts = list(frame.leaves(node))
    operands = [(n, v, facts_of(v)) for n, v in parts if is_operand(v)]
    strays = [(n, v, f) for n, v, f in operands if f.device == found]
    strays = [s for s in strays if s[2].dim > 0] or strays
    if strays and not any(f.device == expected for _, _, f in operands):
        part, value, facts = strays[0]
        text = frame.source.text(part)
        return Stray(text, facts.device, expected, frame, value, facts, Found(value, text, (), ()), part)
    return None


def asked_for(scene: Scene, node: ast.AST | None = None) -> Stray | None:
    """What was to be moved to, or made on, a device that is not here: the receiver of `.cuda()`, or the call itself."""
    node = node or scene.node
    here = scene.here
    if node is None:
        return None
    if isinstance(node, ast.stmt):
        node = next((n for n in ast.walk(node) if isinstance(n, ast.Call) and moves(n)), node)
        if isinstance(node, ast.stmt):
            node = next((n for n in ast.walk(node) if isinstance(n, ast.Call)), node)
    expected = next((o.facts.device for o in scene.operands if o.facts.device not in (None, "cpu")), None)
    target: ast.AST = (
        node.func.value if moves(node) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
    )
    if not isinstance(target, ast.expr):
        return None
    value = here.value(target)
    facts = facts_of(value) if value is not MISSING and is_operand(value) else None
    if facts is None and isinstance(target, ast.expr) and value is MISSING:
        operand = next((o for o in scene.operands if o.facts.device == "cpu"), None)
        facts = None if operand is None else operand.facts
    text = shortened(here.source.text(target))
    found = None if value is MISSING else Found(value, text, (), ())
    return Stray(text, facts.device if facts else "cpu", expected or _around(scene), here, value, facts, found, target)


def _around(scene: Scene) -> str | None:
    """The device that everything else here is on."""
    for frame in scene.frames[:2]:
        for found in tree.search(list(frame.names.items()), most=2_000, deadline=scene.deadline, depth=4):
            if tree.is_tensor(found.value):
                device = facts_of(found.value).device
                if device not in (None, "cpu", "meta"):
                    return device
    return None
