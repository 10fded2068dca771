"""How each kind of container is taken apart and put together again.

A container is put together without its constructor, whatever that would ask for: an instance is made by the `__new__` of the
builtin class below it, then its items and attributes are set by that builtin's own methods. So nothing that a class checks,
counts or forbids in `__init__`, `__setattr__` or `__setitem__` gets in the way, and attributes survive that no constructor
knows.

Those that can contain themselves (lists, dicts, objects) are made empty (`shell`) and filled at the end; the others (tuples,
frozensets, views) are built of finished parts (`build`), and only their attributes are set at the end.

Source: Python documentation, "Data model".
"""

from __future__ import annotations

import collections
import functools
import gc
import types
from collections.abc import Callable
from typing import Any

import torch

from wherry import tree

ATOMS = frozenset(
    {int, float, complex, bool, str, bytes, bytearray, type(None), type, range, slice, types.EllipsisType}
    | {torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, types.FunctionType, types.MethodType}
    | {types.BuiltinFunctionType, types.ModuleType, types.GeneratorType}
)
"""Classes whose instances hold no tensor that anybody would want moved."""


class Kind:
    """A kind of container. `values` and `names` go in the same order: items first, then attributes.

    Attributes:
        cls: The class.
        mutable: Whether it is made empty and filled, so that it can be part of itself.
    """

    mutable = True

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.has_attributes = _has_attributes(cls)

    def values(self, obj: Any) -> list[Any]:
        """The parts of an object."""
        return [*self.items(obj), *_attributes(obj).values()] if self.has_attributes else self.items(obj)

    def names(self, obj: Any) -> list[object]:
        """What leads to each part: a key, an index, or the name of an attribute as an `Attribute`."""
        found = self.keys(obj)
        return [*found, *map(Attribute, _attributes(obj))] if self.has_attributes else found

    def items(self, obj: Any) -> list[Any]:
        """The parts but for attributes."""
        raise NotImplementedError

    def keys(self, obj: Any) -> list[object]:
        """What leads to each item."""
        return list(range(len(self.items(obj))))

    def shell(self, obj: Any) -> Any:
        """An empty twin of a mutable one."""
        raise NotImplementedError

    def fill(self, twin: Any, obj: Any, items: list[Any]) -> None:
        """Put the items into the empty twin."""
        raise NotImplementedError

    def build(self, obj: Any, items: list[Any]) -> Any:
        """The twin of one that is not mutable."""
        raise NotImplementedError

    def again(self, obj: Any, items: list[Any]) -> Any:
        """A twin that does not contain itself, with its items."""
        if not self.mutable:
            return self.build(obj, items)
        twin = self.shell(obj)
        self.fill(twin, obj, items)
        return twin

    def dress(self, twin: Any, obj: Any, values: list[Any]) -> None:
        """Set the attributes of a twin: the last of `values`."""
        names = _attributes(obj)
        if len(names) != len(values):
            values = values[len(values) - len(names) :]
        slots = _slots(self.cls)
        if not slots:
            tree.instance_dict(twin).update(zip(names, values, strict=True))
            return
        members, own = dict(slots), tree.instance_dict(twin)
        for name, value in zip(names, values, strict=True):
            if name in members:
                members[name].__set__(twin, value)
            else:
                own[name] = value


class Attribute(str):
    """The name of an attribute, where a key could be a string too."""

    __slots__ = ()


def step_text(name: object) -> str:
    """How a person writes the way to a part: `.weight`, `['labels']`, `[0]`."""
    if isinstance(name, Attribute):
        return f".{name!s}"
    text = repr(name) if _is_plain(name) else f"<{type(name).__name__}>"
    return f"[{text}]" if len(text) <= 80 else f"[{text[:76]}...]"


def _is_plain(key: object) -> bool:
    """Whether the text of a key is Python's own, and not some class's."""
    if type(key) is tuple:
        return all(map(_is_plain, key))
    return isinstance(key, str | int | float | bytes | bool | None)


class DictKind(Kind):
    """dict and what derives from it. A key that may hold tensors is a part as well."""

    base: Any = dict

    def items(self, obj: Any) -> list[Any]:
        found = list(self.base.values(obj))
        odd = _odd_keys(self.base.keys(obj))
        return found + odd if odd else found

    def keys(self, obj: Any) -> list[object]:
        known = list(self.base.keys(obj))
        return known + _odd_keys(known)

    def shell(self, obj: Any) -> Any:
        return self.base.__new__(self.cls)

    def fill(self, twin: Any, obj: Any, items: list[Any]) -> None:
        keys = list(self.base.keys(obj))
        odd = iter(items[len(keys) :])
        put = self.base.__setitem__
        for key, value in zip(keys, items, strict=False):
            put(twin, key if type(key) in ATOMS else next(odd), value)
        if _is_its_own_dictionary(obj):
            object.__setattr__(twin, "__dict__", twin)


_TEXT = {str}


class PlainDictKind(DictKind):
    """dict itself: the commonest batch."""

    def values(self, obj: Any) -> list[Any]:
        found = list(obj.values())
        return found if _TEXT.issuperset(map(type, obj)) else found + _odd_keys(obj)

    items = values

    def shell(self, obj: Any) -> Any:
        return {}

    def again(self, obj: Any, items: list[Any]) -> Any:
        return dict(zip(obj, items)) if len(items) == len(obj) else super().again(obj, items)  # noqa: B905 - just seen

    def fill(self, twin: Any, obj: Any, items: list[Any]) -> None:
        if len(items) == len(obj):
            twin.update(zip(obj, items))  # noqa: B905 - just seen
        else:
            super().fill(twin, obj, items)


class OrderedDictKind(DictKind):
    base = collections.OrderedDict


class DefaultDictKind(DictKind):
    base = collections.defaultdict

    def shell(self, obj: Any) -> Any:
        twin = self.base.__new__(self.cls)
        member: Any = vars(collections.defaultdict)["default_factory"]  # a slot of the C class
        member.__set__(twin, member.__get__(obj))
        return twin


def _is_its_own_dictionary(obj: Any) -> bool:
    """Whether `self.__dict__ = self` was said, so that items are attributes."""
    try:
        return object.__getattribute__(obj, "__dict__") is obj
    except AttributeError:
        return False


def _odd_keys(keys: Any) -> list[Any]:
    return [key for key in keys if type(key) not in ATOMS] if not ATOMS.issuperset(map(type, keys)) else []


class ListKind(Kind):
    def items(self, obj: Any) -> list[Any]:
        return list(list.__iter__(obj))

    def shell(self, obj: Any) -> Any:
        return list.__new__(self.cls)

    def fill(self, twin: Any, obj: Any, items: list[Any]) -> None:
        list.extend(twin, items)


class PlainListKind(ListKind):
    def values(self, obj: Any) -> list[Any]:
        return obj.copy()

    items = values

    def shell(self, obj: Any) -> Any:
        return []

    def again(self, obj: Any, items: list[Any]) -> Any:
        return items

    def fill(self, twin: Any, obj: Any, items: list[Any]) -> None:
        twin += items


class DequeKind(Kind):
    def items(self, obj: Any) -> list[Any]:
        return list(collections.deque.__iter__(obj))

    def shell(self, obj: Any) -> Any:
        twin = collections.deque.__new__(self.cls)
        member: Any = vars(collections.deque)["maxlen"]
        collections.deque.__init__(twin, (), member.__get__(obj))
        return twin

    def fill(self, twin: Any, obj: Any, items: list[Any]) -> None:
        collections.deque.extend(twin, items)


class SetKind(Kind):
    def items(self, obj: Any) -> list[Any]:
        return list(set.__iter__(obj))

    def shell(self, obj: Any) -> Any:
        return set.__new__(self.cls)

    def fill(self, twin: Any, obj: Any, items: list[Any]) -> None:
        set.update(twin, items)


class FrozenSetKind(Kind):
    mutable = False

    def items(self, obj: Any) -> list[Any]:
        return list(frozenset.__iter__(obj))

    def build(self, obj: Any, items: list[Any]) -> Any:
        return frozenset.__new__(self.cls, items)


class TupleKind(Kind):
    mutable = False

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        fields = getattr(cls, "_fields", None)
        self.fields = tuple(map(Attribute, fields)) if isinstance(fields, tuple) else None

    def items(self, obj: Any) -> list[Any]:
        return list(tuple.__iter__(obj))

    def keys(self, obj: Any) -> list[object]:
        if self.fields is not None and len(self.fields) == tuple.__len__(obj):
            return list(self.fields)
        return list(range(tuple.__len__(obj)))

    def build(self, obj: Any, items: list[Any]) -> Any:
        return tuple.__new__(self.cls, items)


class StructSequenceKind(TupleKind):
    """torch.return_types.max and its kin, which tuple cannot make."""

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.has_attributes = False  # they are the items

    def build(self, obj: Any, items: list[Any]) -> Any:
        return self.cls(items)


class PackedSequenceKind(TupleKind):
    """`batch_sizes` stays on the host, as the kernels of recurrent modules demand (torch/nn/utils/rnn.py)."""

    def items(self, obj: Any) -> list[Any]:
        return [obj[0], *obj[2:]]

    def keys(self, obj: Any) -> list[object]:
        return [Attribute("data"), Attribute("sorted_indices"), Attribute("unsorted_indices")]

    def build(self, obj: Any, items: list[Any]) -> Any:
        return tuple.__new__(self.cls, (items[0], obj[1], *items[1:]))


class ObjectKind(Kind):
    """Any object that is made of its attributes: dataclasses, attrs, plain ones."""

    base: Any = object

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.has_attributes = True

    def items(self, obj: Any) -> list[Any]:
        return []

    def shell(self, obj: Any) -> Any:
        if not _attributes(obj):
            return obj  # nothing that one could tell from another: the end of an iterator, a lock, a descriptor
        if hasattr(self.cls, "__del__"):  # it may own a file, which the twin's end would close
            raise TypeError(f"a {self.cls.__qualname__} has a __del__, which would run for its twin as well")
        return self.base.__new__(self.cls)

    def fill(self, twin: Any, obj: Any, items: list[Any]) -> None:
        pass


class NamespaceKind(ObjectKind):
    base = types.SimpleNamespace


class ProxyKind(Kind):
    """A read-only view of a mapping. What is moved is the mapping."""

    mutable = False

    def items(self, obj: Any) -> list[Any]:
        return gc.get_referents(obj)

    def keys(self, obj: Any) -> list[object]:
        return [Attribute("mapping")]

    def build(self, obj: Any, items: list[Any]) -> Any:
        return types.MappingProxyType(items[0])


class ViewKind(Kind):
    """`.keys()`, `.values()` and `.items()` of a dict, which is what is moved."""

    mutable = False

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.method = cls.__name__.partition("_")[2]

    def items(self, obj: Any) -> list[Any]:
        return gc.get_referents(obj.mapping)

    def keys(self, obj: Any) -> list[object]:
        return [Attribute("mapping")]

    def build(self, obj: Any, items: list[Any]) -> Any:
        return getattr(type(items[0]), self.method)(items[0])


class PartialKind(Kind):
    mutable = False

    def items(self, obj: Any) -> list[Any]:
        return [obj.func, *obj.args, *obj.keywords.values()]

    def keys(self, obj: Any) -> list[object]:
        return [Attribute("func"), *range(len(obj.args)), *obj.keywords]

    def build(self, obj: Any, items: list[Any]) -> Any:
        count = 1 + len(obj.args)
        keywords = dict(zip(obj.keywords, items[count:], strict=True))
        return functools.partial.__new__(self.cls, *items[:count], **keywords)


class NodeKind(Kind):
    """A class that somebody registered with torch's pytree: by the functions that were registered."""

    mutable = False

    def __init__(self, cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
        super().__init__(cls)
        self.has_attributes = False
        self.flatten = flatten
        self.unflatten = unflatten

    def items(self, obj: Any) -> list[Any]:
        return list(self.flatten(obj)[0])

    def build(self, obj: Any, items: list[Any]) -> Any:
        return self.unflatten(items, self.flatten(obj)[1])


# -- attributes, as they are kept, without asking the class


@functools.lru_cache(maxsize=1_000)
def _slots(cls: type) -> tuple[tuple[str, types.MemberDescriptorType], ...]:
    found: dict[str, types.MemberDescriptorType] = {}
    for base in cls.__mro__:
        if "__slots__" not in base.__dict__:
            continue  # what C keeps is for the methods of the kind: default_factory, maxlen
        for name, member in base.__dict__.items():
            if isinstance(member, types.MemberDescriptorType) and name not in ("__dict__", "__weakref__"):
                found[name if name not in found else f"{base.__qualname__}.{name}"] = member
    return tuple(found.items())


def _has_attributes(cls: type) -> bool:
    # Builtin containers may have a dictionary, too: an OrderedDict that is a state_dict keeps its metadata there.
    return bool(_slots(cls)) or cls.__dictoffset__ != 0


def _attributes(obj: Any) -> dict[str, Any]:
    """The attributes of an instance: those of its dictionary, then those in slots that are set."""
    own = tree.instance_dict(obj)
    slots = _slots(type(obj))
    if not slots:
        return own
    found = dict(own)
    for name, member in slots:
        try:
            found[name] = member.__get__(obj)
        except AttributeError:
            continue
    return found
