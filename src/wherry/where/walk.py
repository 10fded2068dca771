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

    It never refers to itself, so that what it keeps goes with it, and does not wait for the garbage collector.

    Attributes:
        parent, step: What it hangs in and how; None at a root.
        value: The object.
        root: How the root is written.
        sort: What its class is.
        moves: Whether the `to` of the outermost module around it, or itself, reaches it.
        about: The parameter whose state it is, in an optimizer.
        attributes: Whether it is a tensor, and what hangs in it is meant.
        node: For who builds a tree of it; -1 at first.
    """

    __slots__ = (
        "_anchor",
        "_home",
        "_optimizer",
        "_top",
        "about",
        "attributes",
        "moves",
        "node",
        "parent",
        "root",
        "sort",
        "step",
        "value",
    )

    def __init__(
        self, parent: Branch | None, step: Step | None, value: Any, root: str, sort: Sort, *, attributes: bool = False
    ) -> None:
        self.parent = parent
        self.step = step
        self.value = value
        self.root = root
        self.sort = sort
        self.attributes = attributes
        self.node = -1
        self.about: Any = None
        self._optimizer: Branch | None = None
        self._top: Branch | None = None
        self._home: Branch | None = None
        self._anchor: Branch | None = None
        if parent is None or step is None:
            self.moves = sort.is_module
            return
        self.about = parent.about
        self._optimizer = parent.optimizer
        self._top = parent.top
        self._home = parent.home
        self._anchor = parent.anchor
        self.moves = (parent.moves and step.kind is Kind.MODULE) if self._home is not None else sort.is_module

    @property
    def optimizer(self) -> Branch | None:
        """The outermost optimizer around it, or itself where it is one; None outside."""
        return self if self._optimizer is None and self.sort.is_optimizer else self._optimizer

    @property
    def top(self) -> Branch | None:
        """The part of the root that it belongs to, or None for the root."""
        return self if self._top is None and self.parent is not None else self._top

    @property
    def home(self) -> Branch | None:
        """The outermost module around it, or itself where it is one; None outside of modules."""
        return self if self._home is None and self.sort.is_module else self._home

    @property
    def anchor(self) -> Branch | None:
        """The innermost module around it, or itself, that the `to` of the outermost one reaches."""
        return self if self.moves else self._anchor

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


class Sort:
    """What the class of an object is, found out once for each class in a walk.

    Attributes:
        kind: What the walk does with it.
        is_module, is_optimizer: As `tree` says.
        managed: Of a module, whether it is one of torch's wrappers, of which only what is registered is looked into.
        plain: Of a module, whether it is no container besides.
        bodies: What stands in the bodies of a module's classes; None until somebody asks.
    """

    __slots__ = ("bodies", "is_module", "is_optimizer", "kind", "managed", "plain")

    def __init__(self, obj: Any) -> None:
        self.kind = _sort(obj)
        self.is_module = tree.is_module(obj)
        self.is_optimizer = tree.is_optimizer(obj)
        self.managed = self.is_module and _comes_from(obj, _MANAGED + _INNARDS)
        self.plain = self.is_module and not any(
            tree.is_a(obj, cls) for cls in (dict, list, tuple, deque, set, frozenset)
        )
        self.bodies: list[tuple[Step, Any]] | None = None


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
    if tree.is_opaque(obj) or any(tree.is_a(obj, cls) for cls in _LOGGING) or _is_script_method(obj):
        return _OPAQUE
    if tree.has_class(obj, "torch.utils.data.dataset", "Dataset") or tree.has_class(
        obj, "torch.utils.data.dataloader", "DataLoader"
    ):
        return _DATA
    return _OPAQUE if _comes_from(obj, _INNARDS) and not tree.is_module(obj) else _BRANCH


def _is_script_method(obj: Any) -> bool:
    """Whether it is a method of a scripted module, whose source is kept beside it with modules that have been replaced."""
    return tree.name_of(type(obj)) == "ScriptMethod" and tree.module_of(type(obj)).startswith("torch")


def walk(roots: Iterable[tuple[str, Any]]) -> Iterator[Leaf | Again]:
    """Every tensor and array in some objects, by every path; what holds them is walked through once.

    Args:
        roots: Starting points, with how they are written.

    Yields:
        A `Leaf` for each path, and an `Again` where a module or an optimizer is met a second time.
    """
    seen: set[int] = set()
    keep: list[Any] = []  # so that no identity is used twice
    sorts: dict[int, Sort] = {}
    names: dict[int, tuple[Any, Leaf]] = {}  # the first path to each parameter
    queues: tuple[deque[Branch], ...] = (deque(), deque(), deque())

    def sort_of(value: Any) -> Sort:
        cls = type(value)
        found = sorts.get(id(cls))  # not the class itself: its hash may be its metaclass's own
        if found is None:
            found = sorts[id(cls)] = Sort(value)
            keep.append(cls)
        return found

    def note(leaf: Leaf) -> Leaf:
        if leaf.step is not None and leaf.step.kind is Kind.PARAMETER and id(leaf.value) not in names:
            names[id(leaf.value)] = (leaf.value, leaf)
        return leaf

    for text, value in roots:
        sort = sort_of(value)
        queues[2 if sort.is_optimizer else 0].append(Branch(None, None, value, text, sort))
    while queue := next((queue for queue in queues if queue), None):
        start = queue.popleft()
        kind = start.sort.kind
        if kind == _LEAF and not start.attributes:
            yield note(Leaf(start.parent, start.step, start.value, start.root))
        if kind == _OPAQUE or (kind == _LEAF and not start.attributes):
            continue
        if id(start.value) in seen:
            if start.sort.is_module or start.sort.is_optimizer:
                yield Again(start)
            continue
        seen.add(id(start.value))
        keep.append(start.value)
        stack = [(start, _parts(start, names))]
        while stack:
            branch, parts = stack[-1]
            for step, value, about in parts:
                sort = sort_of(value)
                kind = sort.kind
                if kind == _OPAQUE or (kind == _DATA and branch.home is not None):
                    continue
                later = about is _LATER
                if kind == _LEAF and not later:
                    yield note(Leaf(branch, step, value, branch.root))
                    if step.kind is Kind.PARAMETER and tree.instance_dict(value):
                        queues[1].append(Branch(branch, step, value, branch.root, sort, attributes=True))
                    continue
                inner = Branch(branch, step, value, branch.root, sort)
                if step.kind is Kind.STATE:
                    inner.about = about
                if later or sort.is_optimizer:
                    queues[2 if sort.is_optimizer else 1].append(inner)
                elif id(value) not in seen:
                    seen.add(id(value))
                    keep.append(value)
                    stack.append((inner, _parts(inner, names)))
                    break
                elif sort.is_module:
                    yield Again(inner)
            else:
                stack.pop()


def _parts(branch: Branch, names: dict[int, tuple[Any, Leaf]]) -> Iterator[tuple[Step, Any, Any]]:
    """The parts of an object, each with `_LATER` if it waits until what is registered has its names, or a state's parameter."""
    obj, sort = branch.value, branch.sort
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
    elif sort.is_optimizer:
        yield from _of_optimizer(branch, names)
    elif sort.is_module:
        parts = tree.parts_of_module(obj, but=_PLAIN) if sort.plain else tree.children(obj, most=None)
        for step, value in parts:
            if step.kind in REGISTERED:
                yield step, value, None
            elif not sort.managed and not _is_innard(value) and not _is_recomputed(obj, step):
                yield step, value, _LATER
        if not sort.managed:
            if sort.bodies is None:
                sort.bodies = list(_of_classes(obj))
            for step, value in sort.bodies:
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
