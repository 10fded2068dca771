"""Every tensor in an object, by every path that leads to it, however deep and however many.

`tree.search` is for post-mortems: it names each object once, and stops at a budget. An inventory may not stop, so this walk
keeps no path of its own: a `Branch` knows its parent and the step from it, and a path is written when somebody asks.

The order decides what things are called. What modules have registered comes first, then what else hangs in them, then
optimizers, whose state is named by the parameter that it is of: `optimizer.state[model.weight]['exp_avg']`.

Datasets and data loaders that a module leads to, by its trainer for example, are none of its tensors.

Nothing of the user's runs (see `wherry.tree`). What is not looked into: the innards of torch.fx, of a compiler and of loggers,
which hold fake tensors and the whole program.
"""

from __future__ import annotations

import functools
import gc
import logging
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from wherry import tree
from wherry.tree import Found, Kind, Step

REGISTERED = (Kind.PARAMETER, Kind.BUFFER, Kind.MODULE)


class Branch:
    """An object on the way, which may hold tensors.

    Attributes:
        parent, step: What it hangs in and how; None at a root.
        value: The object.
        root: How the root is written.
        home: The outermost module around it, or itself where it is one; None outside of modules.
        moves: Whether `home.to()` reaches it.
        about: The parameter whose state it is, in an optimizer.
        optimizer: The optimizer around it, or itself where it is one; None outside.
        top: The part of the root that it belongs to, or None for the root.
        anchor: The innermost module around it, or itself, that `home.to()` reaches.
        attributes: Whether it is a tensor, and what hangs in it is meant.
        node: For who builds a tree of it; -1 at first.
    """

    __slots__ = (
        "about",
        "anchor",
        "attributes",
        "home",
        "moves",
        "node",
        "optimizer",
        "parent",
        "root",
        "step",
        "top",
        "value",
    )

    def __init__(
        self, parent: Branch | None, step: Step | None, value: Any, root: str, *, attributes: bool = False
    ) -> None:
        self.parent = parent
        self.step = step
        self.value = value
        self.root = root
        self.attributes = attributes
        self.about: Any = None if parent is None else parent.about
        self.node = -1
        above = None if parent is None else parent.optimizer
        self.optimizer: Branch | None = self if above is None and tree.is_optimizer(value) else above
        self.top: Branch | None = None if parent is None else parent.top or self
        within = None if parent is None else parent.home
        if within is None:
            self.home, self.moves = (self, True) if tree.is_module(value) else (None, False)
        else:
            self.home = within
            self.moves = parent is not None and parent.moves and step is not None and step.kind is Kind.MODULE
        self.anchor: Branch | None = self if self.moves else None if parent is None else parent.anchor

    def up(self) -> Iterator[Branch]:
        """Itself, its parent, and so on to the root."""
        branch: Branch | None = self
        while branch is not None:
            yield branch
            branch = branch.parent

    def path(self) -> str:
        """How a person would write it."""
        texts = [branch.root if branch.step is None else branch.step.text for branch in self.up()]
        return "".join(reversed(texts))


class Leaf:
    """A tensor or an array, where one path leads to it. Keeps it alive, so it is for the length of a walk.

    Attributes:
        branch: What holds it; None where it is a root itself.
        step: From there to it.
        value: The tensor.
        root: How the root is written.
        moves: Whether the `to` of the outermost module reaches it by this path.
    """

    __slots__ = ("branch", "moves", "root", "step", "value")

    def __init__(self, branch: Branch | None, step: Step | None, value: Any, root: str) -> None:
        self.branch = branch
        self.step = step
        self.value = value
        self.root = root
        self.moves = branch is not None and branch.moves and step is not None and step.kind in REGISTERED

    def path(self) -> str:
        """How a person would write it."""
        if self.branch is None or self.step is None:
            return self.root
        return self.branch.path() + self.step.text

    def found(self) -> Found:
        """The same as what a search finds: with everything on the way."""
        if self.branch is None or self.step is None:
            return Found(self.value, self.root, (), ())
        branches = list(self.branch.up())[::-1]
        steps = [branch.step for branch in branches if branch.step is not None]
        return Found(self.value, self.root, tuple(branch.value for branch in branches), (*steps, self.step))


class Again:
    """A module or an optimizer that was walked through already, where another path leads to it."""

    __slots__ = ("branch",)

    def __init__(self, branch: Branch) -> None:
        self.branch = branch


_OPAQUE, _LEAF, _BRANCH, _DATA = range(4)
_LATER = object()

_CACHED = type(functools.lru_cache(len))  # the class has no public name

_LOGGING = (logging.Logger, logging.Handler, logging.Manager)
_PLAIN = tree.ids(int, float, str, bool, type(None))
_INNARDS = ("torch.fx", "torch._dynamo", "torch._inductor", "torch._subclasses", "torch._guards", "torch._functorch")
_MANAGED = ("torch.nn.parallel", "torch.distributed")
"""Wrappers that keep lists of what they wrap for themselves."""


def is_array(obj: object) -> bool:
    """Whether an object is an array of NumPy or of MLX."""
    return tree.has_class(obj, "numpy", "ndarray") or tree.has_class(obj, "mlx.core", "array")


def _sort(obj: Any) -> int:
    if tree.is_tensor(obj) or is_array(obj):
        return _LEAF
    if tree.is_opaque(obj) or any(tree.is_a(obj, cls) for cls in _LOGGING):
        return _OPAQUE
    if tree.has_class(obj, "torch.utils.data.dataset", "Dataset") or tree.has_class(
        obj, "torch.utils.data.dataloader", "DataLoader"
    ):
        return _DATA
    return _OPAQUE if _comes_from(obj, _INNARDS) and not tree.is_module(obj) else _BRANCH


def walk(roots: Iterable[tuple[str, Any]]) -> Iterator[Leaf | Again]:
    """Every tensor and array in some objects, by every path; what holds them is walked through once.

    Args:
        roots: Starting points, with how they are written.

    Yields:
        A `Leaf` for each path, and an `Again` where a module or an optimizer is met a second time.
    """
    seen: set[int] = set()
    keep: list[Any] = []  # so that no identity is used twice
    sorts: dict[int, int] = {}
    names: dict[int, tuple[Any, Leaf]] = {}  # the first path to each parameter
    queues: tuple[deque[Branch], ...] = (deque(), deque(), deque())
    for text, value in roots:
        queues[2 if tree.is_optimizer(value) else 0].append(Branch(None, None, value, text))

    def sort(value: Any) -> int:
        cls = type(value)
        found = sorts.get(id(cls))  # not the class itself: its hash may be its metaclass's own
        if found is None:
            found = sorts[id(cls)] = _sort(value)
            keep.append(cls)
        return found

    def note(leaf: Leaf) -> Leaf:
        if leaf.step is not None and leaf.step.kind is Kind.PARAMETER and id(leaf.value) not in names:
            names[id(leaf.value)] = (leaf.value, leaf)
        return leaf

    while queue := next((queue for queue in queues if queue), None):
        start = queue.popleft()
        kind = sort(start.value)
        if kind == _LEAF and not start.attributes:
            yield note(Leaf(start.parent, start.step, start.value, start.root))
        if kind == _OPAQUE or (kind == _LEAF and not start.attributes):
            continue
        if id(start.value) in seen:
            if _is_named(start.value):
                yield Again(start)
            continue
        seen.add(id(start.value))
        keep.append(start.value)
        stack = [(start, _parts(start, names))]
        while stack:
            branch, parts = stack[-1]
            for step, value, about in parts:
                kind = sort(value)
                if kind == _OPAQUE or (kind == _DATA and branch.home is not None):
                    continue
                later = about is _LATER
                if kind == _LEAF and not later:
                    yield note(Leaf(branch, step, value, branch.root))
                    if step.kind is Kind.PARAMETER and tree.instance_dict(value):
                        queues[1].append(Branch(branch, step, value, branch.root, attributes=True))
                    continue
                inner = Branch(branch, step, value, branch.root)
                if step.kind is Kind.STATE:
                    inner.about = about
                if later or tree.is_optimizer(value):
                    queues[2 if tree.is_optimizer(value) else 1].append(inner)
                elif id(value) not in seen:
                    seen.add(id(value))
                    keep.append(value)
                    stack.append((inner, _parts(inner, names)))
                    break
                elif _is_named(value):
                    yield Again(inner)
            else:
                stack.pop()


def _is_named(obj: object) -> bool:
    return tree.is_module(obj) or tree.is_optimizer(obj)


def _parts(branch: Branch, names: dict[int, tuple[Any, Leaf]]) -> Iterator[tuple[Step, Any, Any]]:
    """The parts of an object, each with `_LATER` if it waits until what is registered has its names, or a state's parameter."""
    obj = branch.value
    if branch.attributes:
        for name, value in list(tree.instance_dict(obj).items()):
            if type(name) is str and name[:1] != "_":
                yield Step(Kind.ATTRIBUTE, name, f".{name}"), value, None
    elif type(obj) is list or type(obj) is tuple:  # what a million items are in, most of them numbers
        for index, value in enumerate(list(obj)):
            if id(type(value)) not in _PLAIN:
                yield Step(Kind.ITEM, index, f"[{index}]"), value, None
    elif type(obj) is dict:
        for key, value in list(obj.items()):
            if id(type(value)) not in _PLAIN:
                yield tree.item_step(key), value, None
    elif tree.is_optimizer(obj):
        yield from _of_optimizer(branch, names)
    elif tree.is_module(obj):
        managed = _comes_from(obj, _MANAGED + _INNARDS)
        for step, value in tree.children(obj, most=None):
            if step.kind in REGISTERED:
                yield step, value, None
            elif not managed and not _is_innard(value) and not _is_recomputed(obj, step):
                yield step, value, _LATER
        if not managed:
            for step, value in _of_classes(obj):
                yield step, value, _LATER
    elif type(obj) is _CACHED:
        yield Step(Kind.BOUND, None, ".__wrapped__"), obj.__wrapped__, None
        for value in gc.get_referents(obj):
            if value is not obj.__wrapped__ and value is not tree.instance_dict(obj):
                yield Step(Kind.ITEM, None, ".cache[...]"), value, None
    elif not _is_innard(obj):
        for step, value in tree.children(obj, most=None):
            yield step, value, None


def _of_optimizer(branch: Branch, names: dict[int, tuple[Any, Leaf]]) -> Iterator[tuple[Step, Any, Any]]:
    own = tree.instance_dict(branch.value)
    groups, state = own.get("param_groups"), own.get("state")
    written: dict[int, str] = {}
    if tree.is_a(groups, list):
        for index, group in enumerate(list.__iter__(groups)):  # type: ignore[arg-type]
            yield Step(Kind.GROUP, index, f".param_groups[{index}]"), group, None
            params = tree.item(group, "params")
            if tree.is_a(params, list):
                for position, param in enumerate(list.__iter__(params)):
                    written[id(param)] = f"{branch.path()}.param_groups[{index}]['params'][{position}]"
    if tree.is_a(state, dict):
        for param, value in list(dict.items(state)):  # type: ignore[arg-type]
            known = names.get(id(param))
            text = known[1].path() if known is not None else written.get(id(param), "p")
            yield Step(Kind.STATE, None, f".state[{text}]"), value, param
    for step, value in tree.children(branch.value, most=0):
        if step.kind is Kind.ATTRIBUTE:
            yield step, value, None


_METHODS = tree.ids(staticmethod, classmethod)
_CALLABLES = tree.ids(types.FunctionType, _CACHED, functools.partial)


def _of_classes(obj: object) -> Iterator[tuple[Step, Any]]:
    """What stands in the bodies of a module's own classes: tensors, what holds them, and functions that captured some."""
    for cls in tree.mro(obj):
        module = tree.own_dict(cls).get("__module__")
        if type(module) is not str or module.partition(".")[0] in ("torch", "builtins", "typing", "abc"):
            continue
        for name, value in list(tree.own_dict(cls).items()):
            inner = value.__func__ if id(type(value)) in _METHODS else value
            plain = any(tree.is_a(inner, base) for base in (list, tuple, dict, set))
            callable_ = id(type(inner)) in _CALLABLES
            if (plain or callable_ or tree.is_tensor(inner) or tree.is_module(inner)) and name[:2] != "__":
                yield Step(Kind.CLASS, name, f".{name}"), inner


def _comes_from(obj: object, modules: tuple[str, ...]) -> bool:
    return tree.module_of(type(obj)).startswith(modules)


def _is_innard(obj: Any) -> bool:
    if type(obj) is not types.FunctionType:
        return False
    module = obj.__globals__.get("__name__")
    return type(module) is str and module.startswith(_INNARDS)


_RECOMPUTING = {
    "torch.nn.utils.weight_norm": "name",
    "torch.nn.utils.spectral_norm": "name",
    "torch.nn.utils.prune": "_tensor_name",
}
"""Hooks that set an attribute anew before each forward, by their module: which of their attributes has its name."""


def _is_recomputed(module: object, step: Step) -> bool:
    """Whether a plain attribute is made anew from parameters before each forward, as `weight_norm` does."""
    hooks = tree.instance_dict(module).get("_forward_pre_hooks")
    if not tree.is_a(hooks, dict) or not hooks:
        return False
    for hook in list(dict.values(hooks)):
        for cls in tree.mro(hook):
            name = _RECOMPUTING.get(tree.module_of(cls))
            if name is not None and tree.instance_dict(hook).get(name) == step.key:
                return True
    return False
