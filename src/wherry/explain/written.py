"""Where something comes from, read off the source: the statement that made it, or last put it where it is.

A name leads to its assignment, an argument to what the caller passed, an attribute to the statement that sets or registers
it, an element to what was put into its container, a call of the program's own function to what that returns. A step that
computes something new, makes it out of nothing, or moves it is where the trail ends.

`Trail` follows it. Live frames say which object is meant where the text alone would not.
"""

from __future__ import annotations

import ast
import sys
import types
from dataclasses import dataclass, replace
from typing import Any

from wherry import callsite, tree
from wherry.explain.frames import Frame
from wherry.explain.idioms import is_factory, moves
from wherry.explain.source import Assignment, Function, Site, Source, source_of
from wherry.tree import MISSING

_VIEWS = frozenset(
    "view reshape squeeze unsqueeze expand permute transpose t flatten contiguous detach float long eval train clone".split()
)
_FILLS = ("append", "extend", "insert", "add", "setdefault", "update", "appendleft")


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


@dataclass(frozen=True, slots=True)
class Where:
    """A point in the program.

    Attributes:
        source, function: The file, and the function or None.
        line: Assignments below it do not count; 0 for the end of the function.
        frame: The frame that is there right now, or None where none is.
    """

    source: Source
    function: Function | None
    line: int
    frame: Frame | None = None

    @classmethod
    def of(cls, frame: Frame) -> Where:
        function = frame.function
        if function is None and frame.code.co_name in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"):
            function = frame.source.function_of(frame.node)  # a frame of its own before Python 3.12
        return cls(frame.source, function, frame.line, frame)

    @property
    def name(self) -> str:
        return getattr(self.function, "name", "<module>" if self.function is None else "<lambda>")


class Trail:
    """Follows one thing through the source.

    Args:
        frames: The user's live frames, the innermost first.
    """

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames
        self._steps = 40

    def of(self, node: ast.AST | None, at: Where, index: int | None = None) -> Origin | None:
        """Where the value of an expression comes from; `index` says which element of it is meant."""
        self._steps -= 1
        if node is None or self._steps <= 0:
            return None
        if isinstance(node, ast.Name):
            return self.of_name(node.id, at, index)
        if isinstance(node, ast.Attribute):
            found = self._of_attribute(node, at)
            return found or self.here(node, at)
        if isinstance(node, ast.Subscript):
            inside = (
                node.slice.value if isinstance(node.slice, ast.Constant) and type(node.slice.value) is int else None
            )
            return self.of(node.value, at, inside) or self.here(node, at)
        if isinstance(node, ast.Starred | ast.NamedExpr | ast.Await):
            return self.of(node.value, at, index)
        if isinstance(node, ast.Tuple | ast.List) and node.elts:
            one = node.elts[index] if index is not None and -len(node.elts) <= index < len(node.elts) else node.elts[0]
            return self.of(one, at) if isinstance(one, ast.Name | ast.Attribute | ast.Call) else self.here(one, at)
        if isinstance(node, ast.Call) and not moves(node) and not is_factory(node):
            return self._of_call(node, at, index)
        return self.here(node, at)

    def here(self, node: ast.AST, at: Where) -> Origin:
        """An expression as the origin of its own value."""
        return Origin(Site(at.source.file, getattr(node, "lineno", at.line), at.name), node, at.source, at.function)

    # -- calls

    def _of_call(self, node: ast.Call, at: Where, index: int | None) -> Origin:
        """What a function of the program returns; a view of something; or else what this very call makes."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS and isinstance(node.func.value, ast.Name):
            found = self.of(node.func.value, at, index)
            if found is not None:
                return found
        if isinstance(node.func, ast.Attribute) and node.func.attr in (
            "get",
            "pop",
            "items",
            "values",
            "keys",
            "popleft",
        ):
            found = self.of(node.func.value, at)
            if found is not None:
                return found
        if (
            isinstance(node.func, ast.Name)
            and node.func.id in ("list", "tuple", "reversed", "sorted", "iter", "next")
            and node.args
        ):
            found = self.of(node.args[0], at)
            if found is not None:
                return found
        for source, function in self._called(node, at):
            returns = [
                n.value for n in ast.walk(function) if isinstance(n, ast.Return | ast.Yield) and n.value is not None
            ]
            returns = [value for value in returns if not (isinstance(value, ast.Constant) and value.value is None)]
            if not returns:
                continue
            inside = Where(source, function, 0)
            if index is not None and isinstance(returns[-1], ast.Tuple) and index < len(returns[-1].elts):
                found = self.of(returns[-1].elts[index], inside)
            else:
                found = self.of(returns[-1], inside, index)
            if found is not None:
                return found
        return self.here(node, at)

    def _called(self, node: ast.Call, at: Where) -> list[tuple[Source, Function]]:
        """The program's own function that a call runs."""
        is_users = callsite.judge()
        called: Any = MISSING
        if at.frame is not None:
            called = at.frame.value(node.func)
            if called is MISSING and isinstance(node.func, ast.Attribute):
                owner = at.frame.value(node.func.value)
                if owner is not MISSING and not tree.is_a(owner, types.ModuleType):
                    called = tree.class_attribute(owner, node.func.attr)
        for _ in range(4):
            called = tree.instance_dict(called).get("__wrapped__", called) if called is not MISSING else MISSING
        if type(called) is types.FunctionType and is_users(called.__code__.co_filename):
            source = source_of(called.__code__.co_filename)
            function = source.function_at(called.__code__)
            return [] if function is None else [(source, function)]
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "self"
        ):
            cls = at.source.class_of(at.function)
            own = [
                m
                for m in (cls.body if cls is not None else [])
                if isinstance(m, ast.FunctionDef) and m.name == node.func.attr
            ]
            return [(at.source, m) for m in own]
        if name is None or at.source.tree is None:
            return []
        return [(at.source, f) for f in at.source.tree.body if isinstance(f, ast.FunctionDef) and f.name == name]

    # -- names

    def of_name(self, name: str, at: Where, index: int | None = None) -> Origin | None:
        """Where a local, an argument, a captured variable or a global got its value."""
        self._steps -= 1
        if self._steps <= 0 or not name.isidentifier():
            return None
        over = _comprehension(at, name)
        if over is not None:
            return self._of_element(over[0], over[1], at)
        found = at.source.of_name(name, at.function)
        if at.line:
            above = [f for f in found if f.node.lineno < at.line or (f.how == "for" and f.node.lineno <= at.line)]
            below = found if at.function is not None and name not in _arguments(at.function) else []  # by way of a loop
            found = above or below
        if found:
            return self._assigned(found[-1], name, at, index)
        if at.function is None:
            return None
        if name in _arguments(at.function):
            return self._of_argument(name, at, index)
        outer = at.source.function_of(at.function)
        return self.of_name(name, Where(at.source, outer, 0, self.frame_of(outer)), index)

    def frame_of(self, function: Function | None) -> Frame | None:
        """The live frame of a function, or of the top of the file."""
        return next(
            (
                f
                for f in self.frames
                if f.function is function and (function is not None or f.code.co_name == "<module>")
            ),
            None,
        )

    def _assigned(self, found: Assignment, name: str, at: Where, index: int | None) -> Origin:
        origin = Origin(
            Site(at.source.file, found.node.lineno, at.name),
            found.value or found.node,
            at.source,
            found.function,
            found.how,
        )
        if found.how == "for":
            assert isinstance(found.node, ast.For | ast.AsyncFor)
            return self._of_element(found.node.target, found.node.iter, at, name) or origin
        value = found.value
        if value is None or moves(value) or is_factory(value):
            return origin
        if _is_empty(value):
            filled = self._filled(name, at)
            if filled is not None:
                return filled
            return origin
        position = _position_in_target(found.node, name)
        before = replace(at, line=found.node.lineno)
        if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
            return self.of(value, before, position if position is not None else index) or origin
        if isinstance(value, ast.Call):
            if (
                isinstance(value.func, ast.Attribute)
                and isinstance(value.func.value, ast.Name)
                and value.func.value.id == name
            ):
                return self.of_name(name, before) or origin  # mask = mask.triu()
            further = self._of_call(value, before, position if position is not None else index)
            if further.node is not value:
                return further
        elif isinstance(value, ast.Tuple | ast.List):
            return self.of(value, before, position if position is not None else index) or origin
        return origin

    def _of_element(self, target: ast.expr, over: ast.expr, at: Where, name: str | None = None) -> Origin | None:
        """What a loop's variable comes from: the elements of what it runs over."""
        position = _index_of(target, name) if name is not None else None
        if isinstance(over, ast.Call):
            called = (
                over.func.id
                if isinstance(over.func, ast.Name)
                else over.func.attr
                if isinstance(over.func, ast.Attribute)
                else ""
            )
            if called == "enumerate" and over.args:
                if position == 0:
                    return None
                inner = target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) > 1 else target
                return self._of_element(inner, over.args[0], at, name)
            if called == "zip":
                if position is not None and position < len(over.args):
                    return self.of(over.args[position], at)
                return None
            if called in ("items", "values") and isinstance(over.func, ast.Attribute):
                return self.of(over.func.value, at)
            return None
        if isinstance(over, ast.Name | ast.Attribute | ast.Subscript):
            found = self.of(over, at)
            # A loader hands out what it makes: the loop is where that appears.
            return None if found is None or _is_loader(found) else found
        return None

    def _filled(self, name: str, at: Where) -> Origin | None:
        """What was put into a container that began empty."""
        body: ast.AST | None = at.function or at.source.tree
        if body is None:
            return None
        found: ast.expr | None = None
        for node in ast.walk(body):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                holder = node.targets[0].value
                if isinstance(holder, ast.Name) and holder.id == name:
                    found = node.value
            elif (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS and node.args
                and isinstance(node.func.value, ast.Name) and node.func.value.id == name
            ):  # fmt: skip
                found = node.args[-1]
        return None if found is None else self.of(found, replace(at, line=getattr(found, "lineno", 0) + 1))

    def _of_argument(self, name: str, at: Where, index: int | None) -> Origin | None:
        """What the caller passed for an argument; else its default."""
        assert at.function is not None
        caller = None
        # A comprehension has a frame of its own, inside of that of the function, before Python 3.12.
        around = self.frames[self.frames.index(at.frame) :] if at.frame is not None and at.frame in self.frames else []
        frame = next((f for f in around if f.function is at.function), None)
        if frame is not None:
            outer = self.frames[self.frames.index(frame) + 1 :]
            caller = outer[0] if outer else None
            value = frame.names.get(name, MISSING)
            if caller is not None and value is not MISSING:
                for node, passed in caller.leaves(caller.node, through_moves=True):
                    if passed is value:
                        return self.of(node, Where.of(caller), index)
        calls: list[tuple[ast.Call, Where]] = []
        if caller is not None:
            calls = [(call, Where.of(caller)) for call in _calls_in(caller.node, at.function, at.source)]
        if not calls:
            written = _calls_in(at.source.tree, at.function, at.source)
            if len(written) == 1:
                inside = at.source.function_of(written[0])
                calls = [(written[0], Where(at.source, inside, written[0].lineno + 1, self.frame_of(inside)))]
        for call, where in calls:
            passed_node = argument_of(call, at.function, name)
            if passed_node is not None:
                return self.of(passed_node, where, index)
        default = default_of(at.function, name)
        if default is not None:
            return Origin(Site(at.source.file, default.lineno, at.name), default, at.source, None, "default")
        return None

    # -- attributes and paths

    def _of_attribute(self, node: ast.Attribute, at: Where) -> Origin | None:
        owner = at.frame.value(node.value) if at.frame is not None else MISSING
        if owner is not MISSING:
            registered = tree.is_module(owner) and node.attr not in tree.instance_dict(owner)
            return self.of_attribute(owner, node.attr, late=registered)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            cls = at.source.class_of(at.function)
            return None if cls is None else self._set_in(at.source, cls, node.attr, late=False)
        return None

    def of_path(self, owners: tuple[Any, ...], steps: tuple[tree.Step, ...], root: str, at: Where) -> Origin | None:
        """Where the innermost part of a path that the user wrote was set: `self.fc` of `self.fc.weight`."""
        pairs = list(zip(owners, steps, strict=True))
        for position, (owner, step) in reversed(list(enumerate(pairs))):
            if step.kind in (tree.Kind.ATTRIBUTE, tree.Kind.PARAMETER, tree.Kind.BUFFER, tree.Kind.MODULE):
                found = self.of_attribute(owner, str(step.key), late=step.kind is tree.Kind.BUFFER)
                if found is not None:
                    return element_of(found, steps[position + 1].key if position + 1 < len(steps) else None)
        try:
            node = ast.parse(root, mode="eval").body
        except SyntaxError:
            return None
        last = steps[-1].key if steps else None
        return self.of(node, at, last if type(last) is int else None)

    def of_attribute(self, owner: Any, name: str, *, late: bool = False) -> Origin | None:
        """Where an attribute was set: on a live object from outside, else in a method of its class.

        Args:
            owner: The object.
            name: The attribute.
            late: Prefer a method other than the constructor: what that registered has moved with the module.
        """
        outside = [
            (found, frame)
            for frame in self.frames
            for found in frame.source.elsewhere(name)
            if found.function is frame.function and found.node.lineno < frame.line and _sets_on(found, owner, frame)
        ]
        if outside:
            found, frame = outside[-1]
            return self._from(found, Where.of(frame))
        for source, cls in class_sources(owner):
            origin = self._set_in(source, cls, name, late=late) or self._field(source, cls, name)
            if origin is not None:
                return origin
            if tree.class_attribute(owner, name) is not MISSING:
                for statement in cls.body:
                    targets = (
                        statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
                    )
                    if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                        value = getattr(statement, "value", None)
                        return Origin(Site(source.file, statement.lineno, cls.name), value, source, None, "class")
        return None

    def _field(self, source: Source, cls: ast.ClassDef, name: str) -> Origin | None:
        """What a dataclass is constructed with for a field, where that happens once."""
        fields = [s.target.id for s in cls.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        if name not in fields or source.tree is None:
            return None
        made = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and _constructs(node, cls.name)]
        made = [node for node in made if source.class_of(node) is not cls]
        if len(made) != 1:
            return None
        position = fields.index(name)
        passed = next((k.value for k in made[0].keywords if k.arg == name), None)
        if passed is None and position < len(made[0].args):
            passed = made[0].args[position]
        function = source.function_of(made[0])
        return self.of(passed, Where(source, function, made[0].lineno + 1, self.frame_of(function)))

    def _set_in(self, source: Source, cls: ast.ClassDef, name: str, *, late: bool) -> Origin | None:
        every = source.of_attribute(cls, name)
        real = [a for a in every if not (isinstance(a.value, ast.Constant) and a.value.value is None)]
        full = [a for a in real if a.value is None or not _is_empty(a.value)]
        chosen = full or real or every
        if late:
            chosen = [a for a in chosen if getattr(a.function, "name", "") != "__init__"] or chosen
        if not chosen:
            return None
        return self._from(chosen[0], Where(source, chosen[0].function, chosen[0].node.lineno))

    def _from(self, found: Assignment, at: Where) -> Origin:
        """An assignment, or where its value comes from if that is only another name."""
        origin = Origin(
            Site(at.source.file, found.node.lineno, at.name),
            found.value or found.node,
            at.source,
            found.function,
            found.how,
        )
        value = found.value
        before = replace(at, function=found.function, line=found.node.lineno)
        if isinstance(value, ast.Name):
            further = self.of_name(value.id, before)
            return further if further is not None and further.how != "default" else origin
        if isinstance(value, ast.Call) and not moves(value) and not is_factory(value):
            further = self._of_call(value, before, None)
            return further if further.node is not value and further.source is at.source else origin
        return origin


# -- small questions


def _constructs(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name


def element_of(found: Origin, key: object) -> Origin:
    """The element of a literal container that a key means, where the origin is a container."""
    node = found.node
    element: ast.expr | None = None
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                element = value
    elif isinstance(node, ast.List | ast.Tuple) and type(key) is int and 0 <= key < len(node.elts):
        element = node.elts[key]
    if element is None:
        return found
    return replace(found, site=replace(found.site, line=element.lineno), node=element)


def _arguments(function: Function) -> list[str]:
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _calls_in(node: ast.AST | None, function: Function, source: Source) -> list[ast.Call]:
    """The calls of a function in an expression or a file, those of its class for a constructor; also by functools.partial."""
    name = getattr(function, "name", None)
    if name == "__init__":
        name = getattr(source.class_of(function), "name", name)
    found = []
    for part in ast.walk(node) if node is not None else ():
        if not isinstance(part, ast.Call):
            continue
        called = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", None)
        first = part.args[0] if part.args else None
        if called == name or (called == "partial" and isinstance(first, ast.Name) and first.id == name):
            found.append(part)
    if not found and name in ("forward", "__call__", "__init__") and isinstance(node, ast.Call):
        found = [node]
    return found


def argument_of(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call passes for an argument of a function."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if name not in names:
        return None
    position = names.index(name) - (1 if names[0] in ("self", "cls") else 0)
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    position += 1 if called == "partial" else 0
    return call.args[position] if 0 <= position < len(call.args) else None


def _comprehension(at: Where, name: str) -> tuple[ast.expr, ast.expr] | None:
    """Target and iterable of the comprehension that a name is the variable of, around what is running."""
    node: ast.AST | None = at.frame.node if at.frame is not None else None
    while node is not None and not isinstance(node, ast.stmt):
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for part in node.generators:
                if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(part.target)):
                    return part.target, part.iter
        node = at.source.parent(node)
    return None


def _index_of(target: ast.expr, name: str | None) -> int | None:
    if isinstance(target, ast.Tuple | ast.List):
        for position, one in enumerate(target.elts):
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(one)):
                return position
    return None


def _position_in_target(node: ast.stmt, name: str) -> int | None:
    """Which element of an unpacked value a name gets."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            position = _index_of(target, name)
            if position is not None and not (isinstance(node.value, ast.Tuple | ast.List)):
                return position
    return None


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in ("list", "dict", "set", "deque", "defaultdict", "OrderedDict")
    return (isinstance(value, ast.List | ast.Tuple | ast.Set) and not value.elts) or (
        isinstance(value, ast.Dict) and not value.keys
    )


def _is_loader(origin: Origin) -> bool:
    node = origin.node
    return isinstance(node, ast.Call) and ("Loader" in ast.unparse(node.func) or "Dataset" in ast.unparse(node.func))


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


def class_sources(obj: object) -> list[tuple[Source, ast.ClassDef]]:
    """The definitions of the classes of an object that are the user's own."""
    if type(obj) is tree.Described:
        return list(obj.definition)
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
