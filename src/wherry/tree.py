"""Nested objects: what is inside of what, with the path a person would write, read without running anybody's code.

`children(obj)` gives the parts of one object with the `Step` that leads to each: `.weight`, `["labels"]`, `[0]`. Properties,
`__getattr__`, `__iter__` and `__repr__` of a user's class are never called: attributes are read from instance
dictionaries and slots, containers through the methods of the builtin type. So reading can neither fail, nor wait, nor change
anything, which is what a post-mortem needs. The price is that a value that only a property computes is not seen.

`search` walks breadth first, names each object once by its shortest path, and stops at a budget instead of getting lost
in a dataset.

Source: Python documentation, "inspect.getattr_static", whose idea this follows; torch/nn/modules/module.py (2.6 to 2.14) for
where modules keep their parts.
"""

from __future__ import annotations

import enum
import sys
import time
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

MISSING = object()
"""What a static look-up answers where there is nothing."""


class Kind(enum.Enum):
    """How a part hangs in the whole."""

    ATTRIBUTE = "attribute"  # a plain attribute, in a dictionary of the instance or a slot
    PARAMETER = "parameter"  # registered in a module
    BUFFER = "buffer"
    MODULE = "module"
    ITEM = "item"  # of a dict, list, tuple ...
    STATE = "state"  # of an optimizer, by parameter
    GROUP = "group"  # of an optimizer
    CELL = "cell"  # a variable that a function has captured
    DEFAULT = "default"  # the default of a function's argument
    BOUND = "bound"  # the arguments of functools.partial, the object of a bound method
    GRAD = "grad"  # of a tensor
    CLASS = "class"  # in the body of a module's class


@dataclass(frozen=True, slots=True)
class Step:
    """One step from an object to a part of it.

    Attributes:
        kind: How the part hangs in the owner.
        key: The name, key or index.
        text: How it is written after the owner: ".weight", "['labels']".
    """

    kind: Kind
    key: object
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """An object that a search came to. Keeps it alive, so it is for the length of a search."""

    value: Any
    root: str  # how the search's starting point is written
    owners: tuple[Any, ...]  # the starting point, and everything on the way
    steps: tuple[Step, ...]  # from each owner to the next, the last one to `value`

    @property
    def text(self) -> str:
        """The path as a person would write it: "self.layers[0].weight"."""
        return self.prefix(len(self.steps))

    def prefix(self, count: int) -> str:
        """The path as far as its first steps lead."""
        return self.root + "".join(step.text for step in self.steps[:count])

    def within(self, wider: Found) -> Found:
        """The same object, by the path that leads to this one's starting point."""
        return Found(self.value, wider.root, (*wider.owners, *self.owners), (*wider.steps, *self.steps))


@dataclass(eq=False, slots=True)
class Described:
    """An object that is known from source text alone, such as that of a pasted traceback.

    The functions of this file, and what is built on them, take it for the object it describes.

    Attributes:
        role: "tensor", "module", "optimizer", "object", "generator", "array", "function", "class", "namespace".
        name: What its class is called.
        device: Where it must be, of what the text says; None where it does not.
        parts: What hangs in it.
        definition: The source and the node of each of its classes that the text has, the most derived first.
        is_parameter, has_history, dim, dtype: Of a tensor, as in `wherry.explain.tensors.Facts`.
        storage: Of a tensor: the same object for all that share their bytes.
        made: The line and the expression that made it, or None.
        cls: What describes its class, or None.
        meaning: What else the reader of the text keeps of it.
    """

    role: str
    name: str
    device: str | None = None
    parts: list[tuple[Step, Any]] = field(default_factory=list[tuple[Step, Any]])
    definition: tuple[Any, ...] = ()
    is_parameter: bool = False
    has_history: bool = False
    dim: int = 1
    dtype: str | None = None
    storage: Any = None
    made: Any = None
    cls: Described | None = None
    meaning: Any = None


# Of `type` itself, so that no metaclass is asked. Classes are told apart by identity only: what compares or hashes them, `in`
# and `==` with a tuple or a set of classes, runs the `__eq__` and `__hash__` of a metaclass.
_MRO = type.__dict__["__mro__"].__get__
_OWN = type.__dict__["__dict__"].__get__
_NAME = type.__dict__["__name__"].__get__
_is_subclass = type.__dict__["__subclasscheck__"]  # of two classes it looks at the real mro, by identity


def ids(*classes: type) -> frozenset[int]:
    """The identities of some classes that never go away, to ask whether another one is among them."""
    return frozenset(map(id, classes))


# What cannot hold a tensor of the program's, or holds the whole interpreter.
_OPAQUE = ids(
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.GeneratorType,
    types.BuiltinFunctionType,
    type,
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    enum.Enum,
)
_SETTINGS = frozenset(
    """training _parameters _buffers _modules _non_persistent_buffers_set _backward_pre_hooks _backward_hooks
    _is_full_backward_hook _forward_hooks _forward_hooks_with_kwargs _forward_hooks_always_called _forward_pre_hooks
    _forward_pre_hooks_with_kwargs _state_dict_hooks _state_dict_pre_hooks _load_state_dict_pre_hooks
    _load_state_dict_post_hooks""".split()
)
"""What every module has in its dictionary besides its own attributes."""


def mro(obj: object) -> tuple[type, ...]:
    """The classes of an object, without asking the object or its metaclass."""
    return _MRO(type(obj))


def own_dict(cls: type) -> types.MappingProxyType[str, Any]:
    """What stands in the body of a class, without asking the metaclass."""
    return _OWN(cls)


def is_a(obj: object, cls: type) -> bool:
    """`isinstance`, without the `__instancecheck__` and `__class__` that may be somebody's code."""
    if type(obj) is Described:
        return obj.role == cls.__name__
    return _is_subclass(cls, type(obj))


def class_name(obj: object) -> str:
    """What the class of an object is called."""
    return obj.name if type(obj) is Described else name_of(type(obj))


def name_of(cls: type) -> str:
    """`cls.__name__`, without asking the metaclass."""
    return _NAME(cls)


def module_of(cls: type) -> str:
    """`cls.__module__`, without asking the metaclass; "" where it is no text."""
    try:
        found = type.__dict__["__module__"].__get__(cls)
    except AttributeError:
        return ""
    return found if type(found) is str else ""


def has_class(obj: object, module: str, *names: str) -> bool:
    """Whether one of the classes of an object is of a module and one of some names, without importing that module."""
    if type(obj) is Described:
        return obj.name in names
    return any(name_of(cls) in names and module_of(cls) == module for cls in mro(obj))


_OWN_DICT = ids(types.GetSetDescriptorType, types.MemberDescriptorType)


def instance_dict(obj: object) -> dict[str, Any]:
    """The dictionary of an instance, or an empty one where it has none or hides it."""
    for cls in mro(obj):
        own = _OWN(cls).get("__dict__")
        if own is not None and id(type(own)) not in _OWN_DICT:
            return {}  # a class that answers for it itself
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def class_attribute(obj: object, name: str) -> Any:
    """What the classes of an object bind to a name, as it stands there, or `MISSING`."""
    if type(obj) is Described:
        own = next((value for step, value in obj.cls.parts if step.key == name), MISSING) if obj.cls else MISSING
        return class_attribute(obj.cls, name) if own is MISSING and obj.cls is not None else own
    for cls in mro(obj):
        own = _OWN(cls)
        if name in own:
            return own[name]
    return MISSING


def attribute(obj: object, name: str) -> Any:
    """The attribute of an object, as far as it can be had without running code; else `MISSING`."""
    if type(obj) is types.ModuleType:
        return instance_dict(obj).get(name, MISSING)
    if type(obj) is Described:
        found = next((value for step, value in obj.parts if step.key == name), MISSING)
        return class_attribute(obj, name) if found is MISSING else found
    own = instance_dict(obj)
    if name in own:
        return own[name]
    for registry in ("_parameters", "_buffers", "_modules"):
        parts = own.get(registry)
        if is_a(parts, dict) and dict.__contains__(parts, name):  # type: ignore[arg-type]
            return dict.__getitem__(parts, name)  # type: ignore[arg-type]
    found = class_attribute(obj, name)
    if type(found) is types.MemberDescriptorType:  # a slot
        try:
            return found.__get__(obj)
        except AttributeError:
            return MISSING
    if is_a(obj, type):
        for cls in _MRO(obj):
            own = _OWN(cls)
            if name in own:
                return own[name]
    return found


_KEYS = ids(str, int, bool, type(None))
_NUMBERS = ids(int, bool, float, type(None))


def item(obj: object, key: object) -> Any:
    """`obj[key]` of a builtin container, or of a class derived from one, without its `__getitem__`; else `MISSING`."""
    if type(obj) is Described:
        return next((value for step, value in obj.parts if step.key in (key, None)), MISSING)
    if is_a(obj, dict):
        if id(type(key)) not in _KEYS:
            return MISSING
        for have, value in islice(dict.items(obj), 10_000):  # type: ignore[arg-type]  # not by hash: a key's __eq__ may be anything
            if type(have) is type(key) and have == key:
                return value
        return MISSING
    if has_class(obj, "collections", "UserDict", "UserList"):
        return item(instance_dict(obj).get("data"), key)
    for cls in (list, tuple, deque):
        if is_a(obj, cls) and type(key) is int:
            try:
                return cls.__getitem__(obj, key)  # type: ignore[index, arg-type]
            except IndexError:
                return MISSING
    if _is_container_module(obj) and (type(key) is int or type(key) is str):
        parts = instance_dict(obj).get("_modules")
        if is_a(parts, dict):
            names = list(dict.keys(parts))  # type: ignore[arg-type]
            if type(key) is int:
                # Sequential, ModuleList: by position.
                if -len(names) <= key < len(names):
                    return dict.__getitem__(parts, names[key])  # type: ignore[index]
            elif key in names:
                return dict.__getitem__(parts, key)  # type: ignore[index]
    return MISSING


def _is_container_module(obj: object) -> bool:
    return any(module_of(cls) == "torch.nn.modules.container" and name_of(cls) != "Module" for cls in mro(obj))


def is_module(obj: object) -> bool:
    """Whether an object is an `nn.Module`. False where torch is not loaded."""
    if type(obj) is Described:
        return obj.role == "module"
    return _is_torchs("torch.nn", "Module", obj)


def is_namespace(obj: object) -> bool:
    """Whether an object is an imported module."""
    if type(obj) is Described:
        return obj.role == "namespace"
    return is_a(obj, types.ModuleType)


def is_optimizer(obj: object) -> bool:
    """Whether an object is an `Optimizer`."""
    if type(obj) is Described:
        return obj.role == "optimizer"
    return _is_torchs("torch.optim", "Optimizer", obj)


def is_tensor(obj: object) -> bool:
    """Whether an object is a tensor, of any class."""
    if type(obj) is Described:
        return obj.role == "tensor"
    return _is_torchs("torch", "Tensor", obj)


def _is_torchs(module: str, name: str, obj: object) -> bool:
    loaded = sys.modules.get(module)
    cls = None if loaded is None else loaded.__dict__.get(name)
    return cls is not None and _is_subclass(cls, type(obj))


_BINDING = ids(types.FunctionType, types.MethodType, partial)


def children(obj: object, *, most: int | None = 2_000) -> Iterator[tuple[Step, Any]]:
    """The parts of one object, each with the step that leads to it; of a container the first `most`, or all."""
    if type(obj) is Described:
        for step, value in obj.parts:
            if obj.role == "optimizer" and step.key == "state" and is_a(value, dict):
                yield from ((Step(Kind.STATE, None, ".state[p]"), state) for state in list(dict.values(value)))
            else:
                yield step, value
        return
    if is_tensor(obj) or is_opaque(obj):
        return
    if is_a(obj, dict):
        for key, value in list(islice(dict.items(obj), most)):  # type: ignore[arg-type]
            yield item_step(key), value
    elif is_a(obj, list) or is_a(obj, tuple) or is_a(obj, deque):
        names = class_attribute(obj, "_fields")
        base: Any = list if is_a(obj, list) else tuple if is_a(obj, tuple) else deque
        for index, value in enumerate(list(islice(base.__iter__(obj), most))):
            if base is tuple and type(names) is tuple and index < len(names) and type(names[index]) is str:
                yield Step(Kind.ATTRIBUTE, names[index], f".{names[index]}"), value
            else:
                yield Step(Kind.ITEM, index, f"[{index}]"), value
    elif is_a(obj, set) or is_a(obj, frozenset):
        base = set if is_a(obj, set) else frozenset
        for value in list(islice(base.__iter__(obj), most)):
            yield Step(Kind.ITEM, None, "{...}"), value
    elif id(type(obj)) in _BINDING:
        yield from _bound(obj)
        return
    if is_optimizer(obj):
        yield from _of_optimizer(obj, most)
        return
    if is_module(obj):
        yield from parts_of_module(obj)
        return
    if has_class(obj, "collections", "UserDict", "UserList"):
        yield from children(instance_dict(obj).get("data"), most=most)
    for name, value in list(islice(instance_dict(obj).items(), most)):
        if type(name) is str and not (name == "data" and has_class(obj, "collections", "UserDict", "UserList")):
            yield Step(Kind.ATTRIBUTE, name, f".{name}"), value
    yield from slots(obj)


def is_opaque(obj: object) -> bool:
    """Whether an object is not looked into."""
    return not _OPAQUE.isdisjoint(map(id, mro(obj)))


_REGISTRIES = (("_parameters", Kind.PARAMETER), ("_buffers", Kind.BUFFER), ("_modules", Kind.MODULE))


def parts_of_module(obj: object, *, but: frozenset[int] = frozenset()) -> Iterator[tuple[Step, Any]]:
    """The parts of a module: what it has registered, its attributes, its slots, its hooks.

    Args:
        obj: The module.
        but: Identities of classes whose objects are left out among its attributes.
    """
    own = instance_dict(obj)
    skipped, missing = _SETTINGS, False
    numbered: bool | None = None
    for registry, kind in _REGISTRIES:
        parts = own.get(registry)
        if not is_a(parts, dict):
            missing = True
            continue
        for name, value in list(dict.items(parts)):  # type: ignore[arg-type]
            if value is None or type(name) is not str:
                continue
            if numbered is None:
                numbered = _is_container_module(obj)
            text = (f"[{name}]" if name.isdigit() else f"[{name!r}]") if numbered else f".{name}"
            yield Step(kind, name, text), value
    if missing and has_class(obj, "torch.jit._script", "ScriptModule"):
        own = instance_dict(own.get("_actual_script_module", obj))
        skipped = _SCRIPTS
        but = but | _FUNCTIONS
        yield from _registered_in_script(own)
    for name, value in list(own.items()):
        if type(name) is str and name not in skipped and id(type(value)) not in but:
            yield Step(Kind.ATTRIBUTE, name, f".{name}"), value
    yield from slots(obj)
    # Hooks are functions that may have captured a tensor.
    for registry in ("_forward_hooks", "_forward_pre_hooks"):
        hooks = own.get(registry)
        if is_a(hooks, dict):
            for value in list(dict.values(hooks)):  # type: ignore[arg-type]
                yield Step(Kind.ATTRIBUTE, registry, f".{registry}[...]"), value


_SCRIPTS = _SETTINGS | {"_c", "_concrete_type", "_initializing", "forward"}
"""What a scripted module has in its dictionary besides attributes that were set later."""

_FUNCTIONS = ids(types.FunctionType, types.MethodType)


def _registered_in_script(own: dict[str, Any]) -> Iterator[tuple[Step, Any]]:
    """What a scripted module has registered. Its registries are torch's own wrappers over C++, which are asked.

    Source: torch/jit/_script.py, `OrderedDictWrapper`, `OrderedModuleDict` (2.6 to 2.14).
    """
    for registry, kind in _REGISTRIES:
        wrapper = own.get(registry)
        if not has_class(wrapper, "torch.jit._script", "OrderedDictWrapper"):
            continue
        inner = instance_dict(wrapper)
        parts = inner.get("_python_modules") if kind is Kind.MODULE else inner.get("_c")
        if parts is None:
            continue
        for name, value in list(dict.items(parts) if is_a(parts, dict) else type(parts).items(parts)):
            if value is not None and type(name) is str:
                text = f"[{name}]" if name.isdigit() else f".{name}"
                yield Step(kind, name, text), value


def _of_optimizer(obj: object, most: int | None) -> Iterator[tuple[Step, Any]]:
    own = instance_dict(obj)
    state = own.get("state")
    if is_a(state, dict):
        for value in list(islice(dict.values(state), most)):  # type: ignore[arg-type]
            yield Step(Kind.STATE, None, ".state[p]"), value
    groups = own.get("param_groups")
    if is_a(groups, list):
        for index, value in enumerate(list.__iter__(groups)):  # type: ignore[arg-type]
            yield Step(Kind.GROUP, index, f".param_groups[{index}]"), value
    for name, value in list(own.items()):
        if type(name) is str and name not in ("state", "param_groups", "defaults") and not name.startswith("_"):
            yield Step(Kind.ATTRIBUTE, name, f".{name}"), value


def _bound(obj: Any) -> Iterator[tuple[Step, Any]]:
    if type(obj) is types.MethodType:
        yield Step(Kind.BOUND, None, ""), obj.__self__
        yield Step(Kind.BOUND, None, ""), obj.__func__
        return
    if type(obj) is partial:
        for index, value in enumerate(obj.args):
            yield Step(Kind.BOUND, index, f".args[{index}]"), value
        for key, value in obj.keywords.items():
            yield Step(Kind.BOUND, key, f".keywords[{key!r}]"), value
        yield Step(Kind.BOUND, None, ".func"), obj.func
        return
    for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=False):
        try:
            yield Step(Kind.CELL, name, f".{name}"), cell.cell_contents
        except ValueError:  # not bound yet
            continue
    names = obj.__code__.co_varnames[: obj.__code__.co_argcount]
    defaults = obj.__defaults__ or ()
    for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=False):
        yield Step(Kind.DEFAULT, name, f".{name}"), value
    for name, value in (obj.__kwdefaults__ or {}).items():
        yield Step(Kind.DEFAULT, name, f".{name}"), value


def slots(obj: object) -> Iterator[tuple[Step, Any]]:
    """What an object keeps in slots that its classes declare."""
    for cls in mro(obj):
        if id(cls) in _SLOTLESS:
            continue
        some = False
        for name, member in list(_OWN(cls).items()):
            if type(member) is types.MemberDescriptorType and type(name) is str and not name.startswith("__"):
                some = True
                try:
                    yield Step(Kind.ATTRIBUTE, name, f".{name}"), member.__get__(obj)
                except (AttributeError, TypeError):
                    continue
        if not some:
            _note_slotless(cls)


_SLOTLESS: dict[int, Any] = {id(object): None}
"""Classes without slots of their own, by identity, each with a weak reference that removes it.

Most classes have none, and looking costs 20 us for `nn.Module`. Nothing of a class is kept, since one made on the fly may
keep its instance alive, as that of a parametrized module does.
"""


def _note_slotless(cls: type) -> None:
    def forget(_: object, key: int = id(cls), known: dict[int, Any] = _SLOTLESS) -> None:
        known.pop(key, None)

    _SLOTLESS[id(cls)] = weakref.ref(cls, forget)


def item_step(key: object) -> Step:
    """The step to the value of a key of a dictionary."""
    return Step(Kind.ITEM, _plain(key), _item_text(key))


def _plain(key: object) -> object:
    return key if type(key) is str or id(type(key)) in _NUMBERS else None


def _item_text(key: object) -> str:
    if type(key) is str:
        return f"[{key!r}]" if len(key) <= 80 else "[...]"
    return f"[{key!r}]" if id(type(key)) in _NUMBERS else "[...]"


def search(
    roots: Iterable[tuple[str, Any]], *, most: int = 20_000, deadline: float | None = None, depth: int = 8
) -> Iterator[Found]:
    """Every object in some others, breadth first: each one once, by the shortest path.

    Args:
        roots: Starting points, with how they are written.
        most: How many objects to look at before giving up.
        deadline: When to give up, on the clock of `time.thread_time`.
        depth: How many steps to go from a root.

    Yields:
        The roots themselves first.
    """
    seen: set[int] = set()
    queue: deque[Found] = deque(Found(value, text, (), ()) for text, value in roots)
    keep: list[Any] = []  # so that no identity is used twice
    opaque: dict[int, bool] = {}
    while queue and most > 0:
        found = queue.popleft()
        most -= 1
        if not most % 16 and deadline is not None and time.thread_time() > deadline:
            return
        if id(found.value) in seen:
            continue
        seen.add(id(found.value))
        keep.append(found.value)
        yield found
        if len(found.steps) >= depth:
            continue
        owners = (*found.owners, found.value)
        for step, value in children(found.value):
            cls = id(type(value))  # not the class itself: its hash may be its metaclass's own
            if cls not in opaque:
                opaque[cls] = is_opaque(value)
                keep.append(type(value))
            if opaque[cls]:
                continue
            queue.append(Found(value, found.root, owners, (*found.steps, step)))
