"""Which of the operands is the one that did not get moved, and what is it called?

`suspect(scene)` answers with a `Stray`. Where the CPU and a device meet, the one on the CPU strayed, unless the complaint
says the reverse (NumPy, lengths, pinning). Between two devices of a kind it is the one that no parameter and no
computation stands behind. An operand without a name was computed in the failing expression, or just before it: then the
expression that made it is looked at, and the stray is what that was computed from.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wherry import tree
from wherry.explain.frames import Frame, position_of
from wherry.explain.idioms import has_device, moves
from wherry.explain.message import HELD, Complaint
from wherry.explain.scene import Operand, Scene, first, inside_library
from wherry.explain.source import shortened, source_of
from wherry.explain.tensors import Facts, facts_of, is_generator, is_operand
from wherry.ops import reach
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


HOSTS_OWN = ("batch_sizes", "sorted_indices", "unsorted_indices")
"""Parts of a packed sequence; the first is on the CPU wherever the rest is."""


def _is_hosts_own(operand: Operand) -> bool:
    return operand.found is not None and bool(operand.found.steps) and operand.found.steps[-1].key in HOSTS_OWN


def suspect(scene: Scene) -> Stray | None:
    """The stray of a scene, or None where nothing can be said."""
    complaint = scene.message.complaint
    if complaint is Complaint.GRADIENT and scene.message.op is not None:
        return _backward(scene)
    if complaint is Complaint.GENERATOR:
        return _generator(scene)
    if complaint is Complaint.DTYPE:
        return _of_dtype(scene)
    if complaint in (Complaint.KERNEL, Complaint.SIZES):
        return _without_kernel(scene)
    if complaint in (Complaint.ABSENT, Complaint.ORDINAL, Complaint.CHECKPOINT):
        return _asked_for(scene)
    found, expected = sides(scene)
    strays = [o for o in scene.operands if o.facts.device is not None and o.facts.device == found]
    strays = [o for o in strays if o.argument not in HOSTS_OWN and not _is_hosts_own(o)] or strays
    if scene.message.argument == "hidden":
        strays = [o for o in strays if o.argument in ("hx", "cx", "h_0", "hidden", "state")] or strays
    solid = [o for o in strays if o.facts.dim > 0] or strays
    given = _given_for(scene.message.argument, scene)
    if given is not None and given.device == found:
        given.expected = expected
        return given
    solid = [o for o in solid if o.argument is not None and o.argument == scene.message.argument] or solid
    if complaint is Complaint.HOST_ONLY:
        solid = [o for o in solid if o.facts.dtype is not None and "int" in o.facts.dtype] or solid
    named = [o for o in solid if o.name is not None]
    chosen = _preferred(scene, named) if named else (solid[0] if solid else None)
    if chosen is None:
        return _by_elimination(scene, found, expected)
    if chosen.name is None or not (chosen.direct or _is_inside(chosen)):
        computed = _computed(scene, chosen, found, expected)
        if computed is not None:
            return computed
    stray = _stray_of(chosen, found, expected, scene)
    if stray is None:
        return _by_elimination(scene, found, expected, chosen)
    return _followed(stray, scene)


def sides(scene: Scene) -> tuple[str | None, str | None]:
    """Where the stray is, and where it should be."""
    read = scene.message
    if read.complaint in (Complaint.NUMPY, Complaint.HOST_ONLY, Complaint.PINNING):
        away = [o.facts.device for o in scene.operands if o.facts.device not in (None, "cpu")]
        return (read.found if _exact(read.found) else away[0] if away else read.found), "cpu"
    counted: dict[str, list[Operand]] = {}
    for operand in scene.operands:
        if operand.facts.device is not None and operand.facts.device != "meta":
            counted.setdefault(operand.facts.device, []).append(operand)
    solid = {device: ops for device, ops in counted.items() if any(o.facts.dim > 0 for o in ops)}
    present = solid if len(solid) > 1 else counted
    away = [device for device in present if device != "cpu"]
    if "cpu" in present and away:
        named = [device for device in away if device in read.devices]
        return "cpu", (named or away)[0]
    if len(away) > 1:
        return _between(present, read.found, read.others)
    # Only one side can be seen.
    mentioned = [device for device in read.devices if device != "cpu"]
    if "cpu" in read.devices and mentioned:
        return "cpu", (away or mentioned)[0]
    if away and read.complaint is not Complaint.GRADIENT and read.found in (None, "cpu"):
        return "cpu", away[0]
    return read.found, read.others


def _exact(device: str | None) -> bool:
    return device is not None and ":" in device


def _between(present: dict[str, list[Operand]], found: str | None, others: str | None) -> tuple[str, str]:
    """Which of several devices is the odd one: what has no parameter and no history is what did not follow."""

    def weight(device: str) -> float:
        operands = present[device]
        score = 2.0 * any(o.facts.is_parameter for o in operands) + 1.5 * any(o.facts.has_history for o in operands)
        score += 0.5 * (device == others) - 0.5 * (device == found)
        return score + 0.1 * sum(o.argument in ("input", "self", "weight") for o in operands)

    ranked = sorted(present, key=weight)
    return ranked[0], ranked[-1]


def _preferred(scene: Scene, named: list[Operand]) -> Operand:
    """The one to name of several: what the failing expression writes itself, else the first part of its owner."""
    for operand in named:
        if operand.argument is not None and operand.argument == scene.message.argument and operand.direct:
            return operand
    chosen = next((o for o in named if o.direct), named[0])
    if chosen.found is not None and chosen.found.owners:
        owner = chosen.found.owners[-1]
        siblings = {
            id(o.found.value): o
            for o in named
            if o.found is not None and o.found.owners and o.found.owners[-1] is owner
        }
        if tree.is_module(owner):
            for _, value in tree.children(owner):
                if id(value) in siblings:
                    return siblings[id(value)]
    return chosen


def _is_inside(operand: Operand) -> bool:
    """Whether it hangs in something, instead of being a mere local that happens to be it."""
    return operand.found is not None and bool(operand.found.steps)


def _stray_of(operand: Operand, found: str | None, expected: str | None, scene: Scene) -> Stray | None:
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


# -- what has no name


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


def _computed(scene: Scene, operand: Operand, found: str | None, expected: str | None) -> Stray | None:
    """A temporary: the stray is what it was computed from, else the expression that made it."""
    node, frame = making_of(operand.facts, scene)
    if frame is None or node is None:
        return None
    inside = scene.node is not None and any(part is node for part in ast.walk(scene.node))
    if node is scene.node:
        given = _given_for(operand.argument, scene)
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
                return _stray_of(other, found, expected, scene)
    if not inside or not isinstance(node, ast.expr):
        return None
    return Stray(
        shortened(frame.source.text(node)), operand.facts.device, expected, frame, operand.value, operand.facts, node=node,
        argument=operand.argument,
    )  # fmt: skip


def _given_for(argument: str | None, scene: Scene) -> Stray | None:
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


def _by_elimination(
    scene: Scene, found: str | None, expected: str | None, operand: Operand | None = None
) -> Stray | None:
    """What stands in the failing expression and cannot be looked at must be it, if all the rest is where it should be."""
    here = scene.here
    unlikely: ast.expr | None = None
    if (
        isinstance(scene.node, ast.Call)
        and isinstance(scene.node.func, ast.Name)
        and scene.node.func.id in ("exec", "eval")
    ):
        return None  # it happened in a text that is not here
    if operand is None:
        operand = next((o for o in scene.operands if o.facts.device == found and o.name is None), None)
    for node in operands_of(scene.node):
        stray = from_leaves(node, here, found, expected, scene)
        if stray is not None:
            return stray
    for node in operands_of(scene.node):
        if here.value(node) is not MISSING or not isinstance(node, ast.expr) or not _may_be_tensor(node):
            continue
        tensors = [facts_of(v) for _, v in here.leaves(node) if is_operand(v)]
        if moves(node):
            continue
        if any(f.device == expected for f in tensors):
            unlikely = unlikely or node  # it has something to do with the right device, and may still be it
            continue
        return _unnamed(node, operand, found, expected, here)
    return None if unlikely is None else _unnamed(unlikely, operand, found, expected, here)


def _unnamed(node: ast.expr, operand: Operand | None, found: str | None, expected: str | None, here: Frame) -> Stray:
    facts = None if operand is None else operand.facts
    value = MISSING if operand is None else operand.value
    return Stray(shortened(here.source.text(node)), found, expected, here, value, facts, node=node)


def _may_be_tensor(node: ast.AST) -> bool:
    return isinstance(
        node,
        ast.Call
        | ast.BinOp
        | ast.Subscript
        | ast.Attribute
        | ast.Name
        | ast.UnaryOp
        | ast.IfExp
        | ast.List
        | ast.Tuple,
    )


def operands_of(node: ast.AST | None) -> Iterator[ast.AST]:
    """The parts of an expression that its operator or its call is applied to."""
    if isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Subscript):
        yield node.value
        yield from node.slice.elts if isinstance(node.slice, ast.Tuple) else (node.slice,)
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(argument, ast.List | ast.Tuple):
                yield from argument.elts
            else:
                yield argument
    elif isinstance(node, ast.AugAssign):
        yield from (node.target, node.value)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from operands_of(target)
        yield node.value
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Return | ast.Expr) and node.value is not None:
        yield from operands_of(node.value)


def _followed(stray: Stray, scene: Scene) -> Stray:
    """Where a local was just computed from something that lives longer, that is the stray."""
    if stray.found is None or stray.found.steps or stray.facts is None or stray.expected in (None, "cpu"):
        return stray
    if stray.frame.kind_of(stray.name) != "local" or scene.message.complaint is Complaint.NUMPY:
        return stray
    node, frame = making_of(stray.facts, scene)
    if node is None:
        known = stray.frame.source.of_name(stray.name, stray.frame.function, before=stray.frame.line)
        node, frame = (known[-1].value, stray.frame) if known and known[-1].how == "=" else (None, None)
    if node is None or frame is None or frame is not stray.frame or moves(node):
        return stray
    source = from_leaves(node, frame, stray.device, stray.expected, scene)
    if source is None or source.value is stray.value or source.node is None:
        return stray
    text = source.name
    lives_longer = not isinstance(source.node, ast.Name) or frame.kind_of(text) in ("global", "closure")
    same = source.facts is not None and source.facts.storage == stray.facts.storage
    if lives_longer and not same:
        source.via = stray.name
        source.argument = stray.argument
        return source
    return stray


# -- complaints of another kind


def _generator(scene: Scene) -> Stray | None:
    expected = scene.message.others
    for node, value in scene.leaves():
        if is_generator(value):
            facts = facts_of(value)
            text = scene.here.source.text(node)
            return Stray(
                text,
                facts.device or scene.message.found,
                expected,
                scene.here,
                value,
                facts,
                Found(value, text, (), ()),
                node,
                "generator",
            )
    operand = next((o for o in scene.operands if is_generator(o.value) and o.name is not None), None)
    if operand is not None:
        return _stray_of(operand, operand.facts.device or scene.message.found, expected, scene)
    roots = [(scene.here.source.text(n), v) for n, v in scene.leaves()] + list(scene.here.names.items())
    found = first(roots, is_generator, scene)
    if found is not None:
        facts = facts_of(found.value)
        return Stray(found.text, facts.device, expected, scene.here, found.value, facts, found, None, "generator")
    if scene.node is not None:
        for node in ast.walk(scene.node):
            if isinstance(node, ast.keyword) and node.arg == "generator":
                text = scene.here.source.text(node.value)
                return Stray(text, scene.message.found, expected, scene.here, node=node.value, argument="generator")
    return None


def _backward(scene: Scene) -> Stray | None:
    """What the `backward` of the program's own autograd function returned: no line of it is on the traceback."""
    name = scene.message.op
    for frame in scene.frames:
        for cls in frame.source.classes(str(name)):
            for method in cls.body:
                if not isinstance(method, ast.FunctionDef) or method.name != "backward":
                    continue
                returned = [n for n in ast.walk(method) if isinstance(n, ast.Return) and n.value is not None]
                if returned:
                    read = scene.message
                    return Stray(f"{name}.backward", read.found, read.others, frame, node=returned[-1].value)
    return None


def _of_dtype(scene: Scene) -> Stray | None:
    """What has the dtype that the device refuses: an operand, something inside of one, or the call that asks for it."""
    wanted = scene.message.dtype or "float64"
    names = {"float64": ("float64",), "ComplexDouble": ("complex128",), "fp64": ("float64",)}.get(
        wanted, (wanted.lower(),)
    )
    expected = scene.message.others or next((o.facts.device for o in scene.operands if o.facts.device != "cpu"), None)

    def refused(value: Any) -> bool:
        return tree.is_tensor(value) and facts_of(value).dtype in names

    roots = [(scene.here.source.text(n), v) for n, v in scene.leaves()]
    node = scene.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        receiver = node.func.value
        value = scene.here.value(receiver)
        if value is not MISSING:
            roots.insert(0, (scene.here.source.text(receiver), value))
    found = first(roots, refused, scene)
    if found is not None:
        facts = facts_of(found.value)
        return Stray(found.text, facts.device, expected, scene.here, found.value, facts, found, node)
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
    if scene.message.dtype in HELD and (inside := _within(scene, expected)) is not None:
        return inside
    operand = next((o for o in scene.operands if o.facts.dtype in names), None)
    if operand is not None and operand.name is None:
        computed = _computed(scene, operand, operand.facts.device, expected)
        if computed is not None:
            return computed
    if operand is not None and operand.name is not None:
        return _stray_of(operand, operand.facts.device, expected, scene)
    return _asked_for(scene)


def _without_kernel(scene: Scene) -> Stray | None:
    """What is on the device that cannot compute it: an operand, what it was computed from, or the call that makes it."""
    away = [operand for operand in scene.operands if operand.facts.device not in (None, "cpu")]
    gradient = _whose_gradient(scene)
    if gradient is not None:
        call, frame = gradient
        device = away[0].facts.device if away else scene.message.others
        return Stray(shortened(frame.source.text(call)), device, None, frame, node=call)
    named = [operand for operand in away if operand.name is not None and operand.direct]
    if named:
        return _stray_of(named[0], named[0].facts.device, None, scene)
    device = away[0].facts.device if away else scene.message.others
    computed = _computed(scene, away[0], device, None) if away else None
    if computed is None and scene.node is not None and device is not None:
        of_type = [facts_of(v).device for _, v in scene.leaves() if is_operand(v)]
        exact = next((each for each in of_type if each is not None and each.startswith(device)), device)
        computed = from_leaves(scene.node, scene.here, exact, None, scene)
    if computed is not None:
        return computed
    named = [operand for operand in away if operand.name is not None]
    if named:
        return _stray_of(named[0], named[0].facts.device, None, scene)
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


def _asked_for(scene: Scene) -> Stray | None:
    """What was to be moved to, or made on, a device that is not here: the receiver of `.cuda()`, or the call itself."""
    node = scene.node
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
