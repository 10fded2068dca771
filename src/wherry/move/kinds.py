"""What each class is to a movement.

`kind_of(cls)` answers with a `Kind` of container (`containers`), or with one of the `Role` members: a tensor, an object that
moves in place, one that moves itself by its `.to`, something foreign, something to leave alone.

Sources: torch/utils/_pytree.py for registered nodes; transformers' BatchEncoding and BatchFeature, whose `.to` changes the
object itself and leaves tensors in lists behind.
"""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import inspect
import sys
import types

import torch
from torch import Tensor

from wherry import dispatch
from wherry.move import containers
from wherry.move.containers import ATOMS, Kind


class Role(enum.Enum):
    """What a class is that is no container."""

    TENSOR = "tensor"
    MODULE = "module"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    SCALER = "scaler"
    MOVER = "mover"  # has a `.to` of its own
    FOREIGN = "foreign"  # an array of MLX
    OPAQUE = "opaque"


_BUILTIN: tuple[tuple[type, type[Kind]], ...] = (
    (collections.OrderedDict, containers.OrderedDictKind),
    (collections.defaultdict, containers.DefaultDictKind),
    (dict, containers.DictKind),
    (list, containers.ListKind),
    (torch.nn.utils.rnn.PackedSequence, containers.PackedSequenceKind),
    (tuple, containers.TupleKind),
    (collections.deque, containers.DequeKind),
    (set, containers.SetKind),
    (frozenset, containers.FrozenSetKind),
    (types.SimpleNamespace, containers.NamespaceKind),
    (types.MappingProxyType, containers.ProxyKind),
    (functools.partial, containers.PartialKind),
)
_VIEWS = tuple(type(view) for d in ({}, collections.OrderedDict()) for view in (d.keys(), d.values(), d.items()))
_CLASSES_IN_PLACE = {  # torch's own classes that move in place
    torch.nn.Module: Role.MODULE,
    torch.optim.Optimizer: Role.OPTIMIZER,
    torch.optim.lr_scheduler.LRScheduler: Role.SCHEDULER,
    torch.optim.lr_scheduler.ReduceLROnPlateau: Role.SCHEDULER,
    torch.amp.GradScaler: Role.SCALER,
}

IN_PLACE = frozenset(_CLASSES_IN_PLACE.values())

_known: dict[type, Kind | Role] = {}
_nodes = dispatch.pytree_nodes()
_MOST_CLASSES = 10_000  # those made on the fly must not stay for ever
_registered = 0  # how many of them there were when `_known` was filled


def kind_of(cls: type) -> Kind | Role:
    """What a class is to a movement. Looked up once per class, and again when torch's pytree has learned of new ones."""
    global _registered
    found = _known.get(cls)
    if found is not None and len(_nodes) == _registered:
        return found
    if len(_nodes) != _registered or len(_known) > _MOST_CLASSES:
        _registered = len(_nodes)
        _known.clear()
    found = _classify(cls)
    if found not in IN_PLACE:  # a parametrized module has a class of its own, which keeps it alive
        _known[cls] = found
    return found


def _classify(cls: type) -> Kind | Role:
    if cls in ATOMS:
        return Role.OPAQUE
    if cls is dict:
        return containers.PlainDictKind(cls)
    if cls is list:
        return containers.PlainListKind(cls)
    if issubclass(cls, Tensor):
        return Role.TENSOR
    for base, role in _CLASSES_IN_PLACE.items():
        if issubclass(cls, base):
            return role
    if any(base.__module__ == "mlx.core" and base.__name__ == "array" for base in cls.__mro__):
        return Role.FOREIGN
    if issubclass(cls, type | enum.Enum | BaseException | types.ModuleType):
        return Role.OPAQUE
    if cls in _VIEWS:
        return containers.ViewKind(cls)
    if issubclass(cls, torch.nn.utils.rnn.PackedSequence):  # its `.to` would copy what others share
        return parts_of(cls) or Role.OPAQUE
    if _moves_itself(cls):
        return Role.MOVER
    node = _nodes.get(cls)
    if node is not None and not issubclass(cls, _BASES):
        return containers.NodeKind(cls, node.flatten_fn, node.unflatten_fn)
    return parts_of(cls) or Role.OPAQUE


def parts_of(cls: type) -> Kind | None:
    """How an object is taken apart by its items and attributes alone, whatever methods it has; None if it is not."""
    made_in_c = _made_in_c(cls)
    for base, kind in _BUILTIN:
        if issubclass(cls, base):
            if base is tuple and hasattr(cls, "n_sequence_fields"):
                return containers.StructSequenceKind(cls)
            return kind(cls) if made_in_c is _made_in_c(base) else None
    if made_in_c is not object or _is_pythons_own(cls):
        return None
    return containers.ObjectKind(cls)


_BASES = tuple(base for base, _ in _BUILTIN)


def _made_in_c(cls: type) -> type:
    """The class below whose `__new__` makes the instances: the first that is not written in Python."""
    for base in cls.__mro__:
        if isinstance(base.__dict__.get("__new__"), types.BuiltinFunctionType):
            return base
    return object


_DATA_OF_PYTHON = ("collections", "types", "argparse", "functools", "typing")


def _is_pythons_own(cls: type) -> bool:
    """Locks, loggers, threads, files: objects of the standard library that are no data."""
    name = getattr(cls, "__module__", None)
    if not isinstance(name, str):
        return True
    root = name.partition(".")[0]
    if root not in sys.stdlib_module_names or root in _DATA_OF_PYTHON or issubclass(cls, argparse.Namespace):
        return False
    # A class that was made by a call bears the name of whoever called: "abc", for ABCMeta(...).
    return getattr(sys.modules.get(name), cls.__name__, None) is cls or "." in cls.__qualname__


def _moves_itself(cls: type) -> bool:
    """Whether a class has a `.to` that takes a device. A quantity's `.to("metre")` and a date's `.to(zone)` do not."""
    to = inspect.getattr_static(cls, "to", None)
    if to is None or any(
        base.__module__.startswith("transformers.") and base.__name__ in ("BatchEncoding", "BatchFeature")
        for base in cls.__mro__
    ):
        return False
    if isinstance(to, types.FunctionType | functools.partialmethod) or hasattr(to, "__wrapped__"):
        try:
            parameters = list(inspect.signature(to).parameters.values())[1:]  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False
        first = next(iter(parameters), None)
        return first is not None and (first.kind is first.VAR_POSITIONAL or "device" in first.name)
    # Made in C: a storage, whose first argument is the device.
    return callable(to) and cls.__module__.partition(".")[0] == "torch"
