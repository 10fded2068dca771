"""Which of the operands is the one that did not get moved, and what is it called?

`suspect(scene)` answers with a `Stray`. Where the CPU and a device meet, the one on the CPU strayed, unless the complaint
says the reverse (NumPy, lengths, pinning). Between two devices of a kind it is the one that no parameter and no
computation stands behind. An operand without a name was computed in the failing expression, or just before it: then the
expression that made it is looked at, and the stray is what that was computed from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wherry import tree
from wherry.explain.frames import Frame
from wherry.explain.idioms import moves
from wherry.explain.lacked import of_dtype, without_kernel
from wherry.explain.message import Complaint
from wherry.explain.scene import Operand, Scene, first
from wherry.explain.source import shortened
from wherry.explain.stray import Stray, asked_for, computed_for, from_leaves, given_for, making_of, stray_of
from wherry.explain.tensors import facts_of, is_generator, is_operand
from wherry.tree import MISSING, Found

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
        return of_dtype(scene)
    if complaint in (Complaint.KERNEL, Complaint.SIZES):
        return without_kernel(scene)
    if complaint in (Complaint.ABSENT, Complaint.ORDINAL, Complaint.CHECKPOINT):
        return asked_for(scene)
    found, expected = sides(scene)
    strays = [o for o in scene.operands if o.facts.device is not None and o.facts.device == found]
    strays = [o for o in strays if o.argument not in HOSTS_OWN and not _is_hosts_own(o)] or strays
    if scene.message.argument == "hidden":
        strays = [o for o in strays if o.argument in ("hx", "cx", "h_0", "hidden", "state")] or strays
    solid = [o for o in strays if o.facts.dim > 0] or strays
    given = given_for(scene.message.argument, scene)
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
        computed = computed_for(scene, chosen, found, expected)
        if computed is not None:
            return computed
    stray = stray_of(chosen, found, expected, scene)
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


# -- what has no name


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
        return stray_of(operand, operand.facts.device or scene.message.found, expected, scene)
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
