"""Which operand is at fault where nothing strayed: it has a dtype, or is asked for an operator, that the device lacks.

`of_dtype(scene)` and `without_kernel(scene)` answer for `suspects.suspect` with a `Stray`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from wherry import tree
from wherry.explain.frames import Frame
from wherry.explain.idioms import MOVES, has_device
from wherry.explain.message import HELD
from wherry.explain.scene import Scene, first
from wherry.explain.source import shortened
from wherry.explain.stray import Stray, asked_for, computed_for, from_leaves, stray_of
from wherry.explain.tensors import facts_of, is_operand
from wherry.ops import reach
from wherry.tree import MISSING, Found


def of_dtype(scene: Scene) -> Stray | None:
    """What has the dtype that the device refuses: an operand, something inside of one, or the call that asks for it."""
    wanted = scene.message.dtype or "float64"
    names = {"float64": ("float64",), "ComplexDouble": ("complex128",), "fp64": ("float64",)}.get(
        wanted, (wanted.lower(),)
    )
    expected = scene.message.others or next((o.facts.device for o in scene.operands if o.facts.device != "cpu"), None)

    def refused(value: Any) -> bool:
        return tree.is_tensor(value) and facts_of(value).dtype in names

    parts = list(scene.leaves())
    node = refusing(scene, refused)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        receiver = node.func.value
        value = scene.here.value(receiver)
        if value is MISSING and scene.inner:
            value = scene.inner[-1].names.get("self", MISSING)  # of `Net().to(device)`
        if value is not MISSING:
            parts.insert(0, (receiver, value))
    roots = [(scene.here.source.text(part), value) for part, value in parts]
    found = first(roots, refused, scene)
    if found is not None:
        facts, root = facts_of(found.value), (found.owners or (found.value,))[0]
        named = next((part for part, value in parts if value is root), node)
        return Stray(found.text, facts.device, expected, scene.here, found.value, facts, found, named)
    arrays = [(t, v) for t, v in roots if type(v).__module__ == "numpy" and type(v).__name__ == "ndarray"]
    if arrays:
        text, value = arrays[0]
        return Stray(text, "cpu", expected, scene.here, value, None, Found(value, text, (), ()), node)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("double", "to", "type")
    ):
        # It becomes that dtype here.
        for part, value in scene.here.leaves(node.func.value, through_moves=True):
            if tree.is_tensor(value):
                facts, text = facts_of(value), scene.here.source.text(part)
                return Stray(text, facts.device, expected, scene.here, value, facts, Found(value, text, (), ()), part)
        if node.func.attr == "double":
            # A module, or something without a name.
            text = shortened(scene.here.source.text(node.func.value))
            return Stray(text, expected, expected, scene.here, scene.here.value(node.func.value), node=node.func.value)
    if scene.message.dtype in HELD and (inside := _within(scene, expected)) is not None:
        return inside
    operand = next((o for o in scene.operands if o.facts.dtype in names), None)
    if operand is not None and operand.name is None:
        computed = computed_for(scene, operand, operand.facts.device, expected)
        if computed is not None:
            return computed
    if operand is not None and operand.name is not None:
        return stray_of(operand, operand.facts.device, expected, scene)
    stray = asked_for(scene, node)
    if stray is not None:
        stray.expected = stray.expected or expected
    return stray


def refusing(scene: Scene, refused: Callable[[Any], bool] = lambda value: False) -> ast.AST | None:
    """The call that a device refuses for its dtype, also where Python recorded no more than its statement (before 3.11).

    Args:
        scene: What is known of the failure.
        refused: Whether something has the dtype.
    """
    node = scene.node
    if not isinstance(node, ast.stmt):
        return node
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    said = [(call, call.func) for call in calls if isinstance(call.func, ast.Attribute)]
    said = [(call, func) for call, func in said if func.attr in (*MOVES, "type", "double") and func.attr != "cpu"]
    wide = [call for call, func in said if refused(scene.here.value(func.value))]
    return wide[0] if wide else said[0][0] if len(said) == 1 else node


def without_kernel(scene: Scene) -> Stray | None:
    """What is on the device that cannot compute it: an operand, what it was computed from, or the call that makes it."""
    away = [operand for operand in scene.operands if operand.facts.device not in (None, "cpu")]
    gradient = _whose_gradient(scene)
    if gradient is not None:
        call, frame = gradient
        device = away[0].facts.device if away else scene.message.others
        return Stray(shortened(frame.source.text(call)), device, None, frame, node=call)
    named = [operand for operand in away if operand.name is not None and operand.direct]
    if named:
        return stray_of(named[0], named[0].facts.device, None, scene)
    device = away[0].facts.device if away else scene.message.others
    computed = computed_for(scene, away[0], device, None) if away else None
    if computed is None and scene.node is not None and device is not None:
        of_type = [facts_of(v).device for _, v in scene.leaves() if is_operand(v)]
        exact = next((each for each in of_type if each is not None and each.startswith(device)), device)
        computed = from_leaves(scene.node, scene.here, exact, None, scene)
    if computed is not None:
        return computed
    named = [operand for operand in away if operand.name is not None]
    if named:
        return stray_of(named[0], named[0].facts.device, None, scene)
    call = next(
        (part for part in ast.walk(scene.node or ast.Pass()) if isinstance(part, ast.Call) and has_device(part)), None
    )
    return None if call is None else Stray(shortened(scene.here.source.text(call)), device, None, scene.here, node=call)


def runs_backward(node: ast.AST | None) -> bool:
    """Whether an expression runs a backward pass; a step may call a closure that does."""
    called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    return called in ("backward", "grad", "step")


def _whose_gradient(scene: Scene) -> tuple[ast.Call, Frame] | None:
    """The call in the program of which the backward pass needs the operator, where a backward pass failed."""
    operator = scene.message.op or scene.op
    if operator is None or not runs_backward(scene.node):
        return None
    # As a program calls them: `solve` is linalg_solve, and there may be one without the first half.
    names = {name.rpartition("linalg_")[2] for name in reach.needed_by(operator, backward=True)}
    for frame in scene.frames:
        for call in frame.source.calls(None, *names):
            return call, frame
    return None


def _within(scene: Scene, expected: str | None) -> Stray | None:
    """What becomes float64 inside of the failing expression: by `.double()`, or in a scaler of gradients."""
    here = scene.here
    for part in ast.walk(scene.node) if scene.node is not None else ():
        if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute):
            continue
        if part.func.attr == "double" and part is not scene.node:
            return Stray(shortened(here.source.text(part)), expected, expected, here, node=part)
        if part.func.attr in ("step", "unscale_") and "GradScaler" in "".join(here.source.lines):
            scaler = part.func.value
            value = here.value(scaler)
            if value is MISSING or type(value).__name__.endswith("GradScaler"):
                text = here.source.text(scaler)
                return Stray(text, expected, expected, here, value, None, Found(value, text, (), ()), scaler)
    return None
