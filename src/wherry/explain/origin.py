"""Where a stray comes from: the line that made it, or last put it where it is.

In a rehearsal the storage's record says it. On a real device it is read off the source: where the local is assigned,
where the caller got the argument from, where the class sets or registers the attribute, where the module that holds the
parameter was made. Either way a value that was computed from another stray leads on to that one.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import Any

from wherry import callsite, tree
from wherry.explain.frames import Frame
from wherry.explain.idioms import is_factory, moves
from wherry.explain.scene import Scene, first
from wherry.explain.source import Assignment, Function, Site, Source, source_of
from wherry.explain.suspects import Stray, from_leaves, making_of
from wherry.explain.tensors import facts_of, is_operand
from wherry.tree import MISSING


@dataclass(slots=True)
class Origin:
    """Where something was made.

    Attributes:
        site: The line.
        node: The expression, or None.
        source: The file it stands in.
        function: The function it stands in, or None at the top of a file or where that is not known.
        how: How it got its name: "=", "for", "register_buffer" ..., or "" where only the expression is known.
    """

    site: Site
    node: ast.AST | None
    source: Source
    function: Function | None
    how: str = ""


def trace(stray: Stray, scene: Scene) -> Origin | None:
    """The origin of a stray, or None where nothing leads to it."""
    origin = _recorded(stray, scene) or _written(stray, scene, depth=6)
    return origin


# -- from a rehearsal's record


def _recorded(stray: Stray, scene: Scene) -> Origin | None:
    facts = stray.facts
    is_users = callsite.judge()
    for _ in range(4):
        if facts is None or facts.site is None or not is_users(facts.site.file):
            return None
        node, frame = making_of(facts, scene)
        origin = _at(facts.site, node)
        if node is None or frame is None or moves(node) or stray.expected == "cpu":
            return origin
        earlier = from_leaves(node, frame, stray.device, stray.expected, scene) or _taken_out(node, frame, stray, scene)
        if earlier is None or earlier.facts is None or earlier.facts.site is None or earlier.value is stray.value:
            return _rebound(origin, node, stray)
        if earlier.facts.site.line == facts.site.line and earlier.facts.site.file == facts.site.file:
            return origin
        facts = earlier.facts
    return None if facts is None or facts.site is None else _at(facts.site, making_of(facts, scene)[0])


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


def _rebound(origin: Origin, node: ast.AST, stray: Stray) -> Origin:
    """`mask = torch.ones(n)` and then `mask = mask.triu()`: the name now means the second, the first is the origin."""
    del stray
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


# -- from the source


def _of_assignment(found: Assignment, source: Source, function: str | None) -> Origin:
    name = getattr(found.function, "name", function)
    return Origin(
        Site(source.file, found.node.lineno, name), found.value or found.node, source, found.function, found.how
    )


def _written(stray: Stray, scene: Scene, depth: int) -> Origin | None:
    if stray.found is not None and stray.found.steps:
        return of_path(stray.found.owners, stray.found.steps, stray.found.root, stray.frame, scene, depth)
    if stray.node is not None and not isinstance(stray.node, ast.Name | ast.Attribute | ast.Subscript):
        return _of_expression(stray.node, stray.frame, scene, depth)
    if isinstance(stray.node, ast.Attribute):
        owner = stray.frame.value(stray.node.value)
        if owner is not MISSING:
            found = of_attribute(owner, stray.node.attr, scene)
            if found is not None:
                return found
    name = stray.found.root if stray.found is not None else stray.name
    return of_name(name, stray.value, stray.frame, scene, depth)


def of_name(name: str, value: Any, frame: Frame, scene: Scene, depth: int) -> Origin | None:
    """Where a local, an argument or a global got its value."""
    if depth <= 0 or not name.isidentifier():
        return None
    kind = frame.kind_of(name)
    function = frame.function
    if kind in ("local", "argument"):
        earlier = frame.source.of_name(name, function, before=frame.line + 1) if function is not None else []
        earlier = [a for a in earlier if a.node.lineno < frame.line or a.how == "for"]
        if not earlier and kind == "local" and function is not None:
            earlier = frame.source.of_name(name, function)
        if earlier:
            return _onwards(earlier[-1], frame, scene, depth)
        if kind == "argument":
            return _of_argument(name, value, frame, scene, depth)
        return None
    if kind == "closure":
        outer: ast.AST | None = function
        while outer is not None:
            outer = frame.source.function_of(outer)
            found = frame.source.of_name(name, outer if isinstance(outer, Function) else None)
            if found:
                return _of_assignment(found[-1], frame.source, None)
        return None
    found = frame.source.of_name(name, None)
    earlier = [a for a in found if a.node.lineno < frame.line or frame.code.co_name != "<module>" or a.how == "for"]
    return _onwards((earlier or found)[-1], frame, scene, depth) if found else None


def _onwards(found: Assignment, frame: Frame, scene: Scene, depth: int) -> Origin:
    """An assignment, or where what it assigns comes from, if that is only another name of the same thing."""
    origin = _of_assignment(found, frame.source, frame.code.co_name)
    node = found.value
    if found.how != "=" or node is None or moves(node):
        return origin
    inner = node
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _VIEWS:
        inner = inner.func.value
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    if isinstance(inner, ast.Name) and inner.id != _target(found):
        value = frame.value(inner)
        further = of_name(inner.id, value, frame, scene, depth - 1)
        return further or origin
    if isinstance(inner, ast.Name):
        earlier = frame.source.of_name(inner.id, frame.function, before=found.node.lineno)
        return _onwards(earlier[-1], frame, scene, depth - 1) if earlier and depth > 0 else origin
    if isinstance(inner, ast.Attribute) and inner is node:
        owner = frame.value(inner.value)
        further = of_attribute(owner, inner.attr, scene) if owner is not MISSING else None
        return further or origin
    return origin


_VIEWS = "view reshape squeeze unsqueeze expand permute transpose t flatten contiguous detach float long".split()


def _target(found: Assignment) -> str | None:
    node = found.node
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _of_argument(name: str, value: Any, frame: Frame, scene: Scene, depth: int) -> Origin | None:
    """What the caller passed for an argument; else its default."""
    callers = scene.frames[scene.frames.index(frame) + 1 :] if frame in scene.frames else []
    for caller in callers[:1]:
        for node, passed in caller.leaves(caller.node, through_moves=True):
            if passed is value and value is not MISSING and isinstance(node, ast.Name):
                return of_name(node.id, value, caller, scene, depth - 1)
            if passed is value and value is not MISSING:
                return _of_expression(node, caller, scene, depth - 1)
        call = caller.node
        if isinstance(call, ast.Call):
            position = _position(name, frame)
            for keyword in call.keywords:
                if keyword.arg == name:
                    return _of_expression(keyword.value, caller, scene, depth - 1)
            if position is not None and position < len(call.args):
                return _of_expression(call.args[position], caller, scene, depth - 1)
    default = default_of(frame.function, name)
    if default is not None and frame.function is not None:
        return Origin(Site(frame.file, default.lineno, frame.code.co_name), default, frame.source, None, "default")
    return None


def default_of(function: Function | None, name: str) -> ast.expr | None:
    """The expression of an argument's default."""
    if function is None:
        return None
    spec = function.args
    plain = [*spec.posonlyargs, *spec.args]
    for argument, default in zip(plain[len(plain) - len(spec.defaults) :], spec.defaults, strict=False):
        if argument.arg == name:
            return default
    for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=False):
        if argument.arg == name:
            return default
    return None


def _position(name: str, frame: Frame) -> int | None:
    names = frame.code.co_varnames[: frame.code.co_argcount]
    if name not in names:
        return None
    return names.index(name) - (1 if names and names[0] in ("self", "cls") else 0)


def _of_expression(node: ast.AST, frame: Frame, scene: Scene, depth: int) -> Origin | None:
    """Where the value of an expression comes from: it was made there, or it is a name for something."""
    if depth <= 0:
        return None
    if isinstance(node, ast.Name):
        return of_name(node.id, frame.value(node), frame, scene, depth)
    if isinstance(node, ast.Attribute):
        owner = frame.value(node.value)
        found = of_attribute(owner, node.attr, scene) if owner is not MISSING else None
        if found is not None:
            return found
    if isinstance(node, ast.Call):
        returned = _returned(node, frame)
        if returned is not None:
            return returned
    return Origin(
        Site(frame.file, getattr(node, "lineno", frame.line), frame.code.co_name), node, frame.source, frame.function
    )


def _returned(call: ast.Call, frame: Frame) -> Origin | None:
    """What a function of the same file returns, if it makes it in that line."""
    if not isinstance(call.func, ast.Name) or frame.source.tree is None:
        return None
    for function in frame.source.tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == call.func.id:
            returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
            if len(returns) == 1 and returns[0].value is not None:
                value = returns[0].value
                if isinstance(value, ast.Name):
                    made = frame.source.of_name(value.id, function)
                    return _of_assignment(made[-1], frame.source, function.name) if made else None
                return Origin(Site(frame.file, returns[0].lineno, function.name), value, frame.source, function)
    return None


def of_path(
    owners: tuple[Any, ...], steps: tuple[tree.Step, ...], root: str, frame: Frame, scene: Scene, depth: int
) -> Origin | None:
    """Where the innermost part of a path that the user wrote was set: `self.fc` of `self.fc.weight`."""
    for owner, step in reversed(list(zip(owners, steps, strict=True))):
        if step.kind in (tree.Kind.ATTRIBUTE, tree.Kind.PARAMETER, tree.Kind.BUFFER, tree.Kind.MODULE):
            found = of_attribute(owner, str(step.key), scene)
            if found is not None:
                return found
    return of_name(root.partition(".")[0], owners[0] if owners else MISSING, frame, scene, depth)


def class_sources(obj: object) -> list[tuple[Source, ast.ClassDef]]:
    """The definitions of the classes of an object that are the user's own."""
    if type(obj) is tree.Described:
        return [] if obj.definition is None else [obj.definition]
    is_users = callsite.judge()
    found = []
    for cls in tree.mro(obj):
        module = sys.modules.get(cls.__module__) if isinstance(cls.__module__, str) else None
        file = None if module is None else tree.instance_dict(module).get("__file__")
        if file is None and cls.__module__ == "__main__":
            file = _file_of_main(cls)
        if isinstance(file, str) and is_users(file):
            source = source_of(file)
            found += [(source, node) for node in source.classes(cls.__name__)]
    return found


def _file_of_main(cls: type) -> str | None:
    """The file of a class that was typed into a notebook or run from a string: that of one of its functions."""
    for value in list(vars(cls).values()):
        code = getattr(value, "__code__", None) if type(value).__name__ == "function" else None
        if code is not None:
            return code.co_filename
    return None


def of_attribute(owner: Any, name: str, scene: Scene) -> Origin | None:
    """Where an attribute was set: on a live object from outside, else in a method of its class."""
    outside = [
        (found, frame)
        for frame in scene.frames
        for found in frame.source.elsewhere(name)
        if found.function is frame.function and found.node.lineno < frame.line and _sets_on(found, owner, frame)
    ]
    if outside:
        found, frame = outside[-1]
        return _of_assignment(found, frame.source, frame.code.co_name)
    for source, cls in class_sources(owner):
        every = source.of_attribute(cls, name)
        real = [a for a in every if not (isinstance(a.value, ast.Constant) and a.value.value is None)]
        if real or every:
            return _of_assignment((real or every)[0], source, None)
        if tree.class_attribute(owner, name) is not MISSING:
            for statement in cls.body:
                if isinstance(statement, ast.Assign | ast.AnnAssign) and name in ast.dump(statement):
                    return Origin(Site(source.file, statement.lineno, cls.name), statement.value, source, None, "class")
        if is_dataclass(cls):
            continue
    return None


def is_dataclass(cls: ast.ClassDef) -> bool:
    """Whether a class is decorated as a dataclass."""
    return any("dataclass" in ast.dump(decorator) for decorator in cls.decorator_list)


def _sets_on(found: Assignment, owner: Any, frame: Frame) -> bool:
    """Whether an assignment in a live frame set the attribute of this very object."""
    node = found.node
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        base = target.value if isinstance(target, ast.Subscript) else target
        if isinstance(base, ast.Attribute) and frame.value(base.value) is owner:
            # Inside of its own methods it is the class's business.
            return not (isinstance(base.value, ast.Name) and base.value.id == "self")
    return False


def origin_of_value(value: Any, scene: Scene) -> Origin | None:
    """The recorded origin of any tensor."""
    if not is_operand(value):
        return None
    facts = facts_of(value)
    return None if facts.site is None else _at(facts.site, making_of(facts, scene)[0])
