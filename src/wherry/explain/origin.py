"""Where a stray comes from: the line that made it, or last put it where it is.

In a rehearsal the storage's record says it. On a real device it is read off the source: where the local is assigned,
where the caller got the argument from, where the class sets or registers the attribute, where the module that holds the
parameter was made. Either way a value that was computed from another stray leads on to that one.
"""

from __future__ import annotations

import ast
from typing import Any

from wherry import callsite, tree
from wherry.explain.frames import Frame
from wherry.explain.handed import handed_out
from wherry.explain.idioms import is_factory, moves
from wherry.explain.message import Complaint
from wherry.explain.scene import Scene, first
from wherry.explain.source import Assignment, Site, Source, source_of
from wherry.explain.stray import Stray, from_leaves, making_of
from wherry.explain.tensors import facts_of, is_operand
from wherry.explain.written import Origin, Trail, Where, class_sources


def trace(stray: Stray, scene: Scene) -> Origin | None:
    """The origin of a stray, or None where nothing leads to it."""
    found = _recorded(stray, scene) or _converted(stray, scene) or _written(stray, scene)
    if scene.message.complaint is Complaint.DTYPE:
        # It was made so before it was put into a batch.
        return handed_out(stray, found, scene) or found
    return found


# -- from a rehearsal's record


def _recorded(stray: Stray, scene: Scene) -> Origin | None:
    facts = stray.facts
    is_users = callsite.judge()
    for _ in range(4):
        if facts is None or facts.site is None or not is_users(facts.site.file):
            return None
        node, frame = making_of(facts, scene)
        origin = _at(facts.site, node)
        if node is None or frame is None or stray.expected == "cpu" or not _looks_at(node, frame):
            return _put_there(stray) or origin
        earlier = from_leaves(node, frame, stray.device, stray.expected, scene) or _taken_out(node, frame, stray, scene)
        if earlier is None or earlier.facts is None or earlier.facts.site is None or earlier.value is stray.value:
            return _rebound(origin, node)
        if earlier.facts.site.line == facts.site.line and earlier.facts.site.file == facts.site.file:
            return origin
        facts = earlier.facts
    return None if facts is None or facts.site is None else _at(facts.site, making_of(facts, scene)[0])


def _looks_at(node: ast.AST, frame: Frame) -> bool:
    """Whether an expression only looks at something else in another way, so that its origin is the other's."""
    if moves(node):
        return False
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            base = part.func.value if isinstance(part.func, ast.Attribute) else None
            if base is None or tree.is_namespace(frame.value(base)) or tree.is_module(frame.value(part.func)):
                return False
            if tree.is_module(frame.value(base)):
                return False
    return True


def _put_there(stray: Stray) -> Origin | None:
    """The statement that put another tensor in the place of a parameter or buffer: `self.codes.data = centroids`."""
    owner, name = _registered_as(stray)
    if owner is None:
        return None
    for source, cls in class_sources(owner):
        for found in source.of_attribute(cls, name):
            if found.how == ".data=" and getattr(found.function, "name", "__init__") != "__init__":
                return _of_assignment(found, source, None)
    return None


def _registered_as(stray: Stray) -> tuple[object | None, str]:
    """The module that has the stray registered, and under which name."""
    owner, name = None, ""
    if stray.found is not None and stray.found.steps:
        owner, name = stray.found.owners[-1], str(stray.found.steps[-1].key)
    elif isinstance(stray.node, ast.Attribute):
        owner, name = stray.frame.value(stray.node.value), stray.node.attr
    if owner is None or not tree.is_module(owner):
        return None, ""
    kinds = {step.kind for step, _ in tree.children(owner) if step.key == name}
    return (owner, name) if kinds & {tree.Kind.PARAMETER, tree.Kind.BUFFER} else (None, "")


def _taken_out(node: ast.AST, frame: Frame, stray: Stray, scene: Scene) -> Stray | None:
    """What an expression took out of a container, judged by what is left in there."""
    taken = [
        n for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr in ("pop", "popleft", "popitem", "get")
    ]
    containers = [(frame.source.text(n.value), frame.value(n.value)) for n in taken]
    found = first(containers, lambda v: tree.is_tensor(v) and facts_of(v).device == stray.device, scene)
    if found is None:
        return None
    return Stray(found.text, stray.device, stray.expected, frame, found.value, facts_of(found.value), found)


def _at(site: callsite.Callsite, node: ast.AST | None) -> Origin:
    source = source_of(site.file)
    return Origin(Site(site.file, site.line, site.function), node, source, source.function_of(node))


def _rebound(origin: Origin, node: ast.AST) -> Origin:
    """`mask = torch.ones(n)` and then `mask = mask.triu()`: the name now means the second, the first is the origin."""
    statement: ast.AST | None = node
    while statement is not None and not isinstance(statement, ast.stmt):
        statement = origin.source.parent(statement)
    if not isinstance(statement, ast.Assign) or is_factory(node):
        return origin
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    used = [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in names]
    for name in used:
        earlier = origin.source.of_name(name, origin.function, before=statement.lineno)
        if earlier and earlier[-1].how == "=" and _makes_tensor(earlier[-1].value):
            return _of_assignment(earlier[-1], origin.source, origin.site.function)
    return origin


def _makes_tensor(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call | ast.BinOp | ast.UnaryOp)


def _of_assignment(found: Assignment, source: Source, function: str | None) -> Origin:
    name = getattr(found.function, "name", function)
    return Origin(
        Site(source.file, found.node.lineno, name), found.value or found.node, source, found.function, found.how
    )


# -- from the source


def _converted(stray: Stray, scene: Scene) -> Origin | None:
    """The call that made a whole module float64: `model.double()`."""
    if scene.message.complaint is not Complaint.DTYPE or stray.found is None:
        return None
    for frame in scene.frames:
        for call in frame.source.calls(frame.function, "double"):
            assert isinstance(call.func, ast.Attribute)
            holder = frame.value(call.func.value)
            if call.lineno < frame.line and tree.is_module(holder) and any(one is holder for one in stray.found.owners):
                return Trail(scene.frames).here(call, Where.of(frame))
    return None


def _written(stray: Stray, scene: Scene) -> Origin | None:
    trail, at = Trail(scene.frames), Where.of(stray.frame)
    if stray.found is not None and stray.found.steps:
        return trail.of_path(stray.found.owners, stray.found.steps, stray.found.root, at)
    if stray.node is not None:
        return trail.of(stray.node, at)
    try:
        node = ast.parse(stray.found.root if stray.found is not None else stray.name, mode="eval").body
    except SyntaxError:
        return None
    return trail.of(node, at)


def origin_of_value(value: Any, scene: Scene) -> Origin | None:
    """The recorded origin of any tensor."""
    if not is_operand(value):
        return None
    facts = facts_of(value)
    return None if facts.site is None else _at(facts.site, making_of(facts, scene)[0])
