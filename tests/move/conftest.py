"""Portraits of objects: what must be the same before and after a move, read without the code that is under test.

A portrait numbers every object at its first visit and says of each what it is and which numbers its parts have. So two
portraits are equal only where the same object stands twice in the one and in the other: aliases, cycles and storages
that are shared by views are part of the picture. It is flat, so that depth is no matter.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import wherry

PLAIN = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device, torch.Size, slice, range)
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
DENSE = torch.strided


def attributes(obj: object) -> Iterator[tuple[str, object]]:
    """What an instance holds in its dictionary and in its slots, read without calling its code."""
    yield from getattr(obj, "__dict__", {}).items()
    for kind in type(obj).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            descriptor = kind.__dict__.get(name)
            if isinstance(descriptor, types.MemberDescriptorType):
                try:
                    yield name, descriptor.__get__(obj)
                except AttributeError:
                    pass  # a slot that was never filled


def order(element: object) -> str:
    """Where an element of a set stands in a portrait: sets of tensors have another order after every move."""
    shape = (element.dtype, tuple(element.shape)) if isinstance(element, Tensor) else element
    return f"{type(element).__name__} {shape}"


def parts(obj: object) -> Iterator[tuple[object, object]]:
    """The parts of an object, each with the key or the name that leads to it."""
    if isinstance(obj, Tensor):
        if obj.is_leaf and obj.grad is not None:
            yield ".grad", obj.grad
    elif isinstance(obj, dict):
        yield from dict.items(obj)
        if isinstance(obj, defaultdict):
            yield ".default_factory", obj.default_factory
    elif isinstance(obj, types.MappingProxyType):
        yield from obj.items()
    elif isinstance(obj, type({}.items())):
        yield from obj  # the pairs themselves are made anew at each look
    elif isinstance(obj, set | frozenset):
        yield from enumerate(sorted(obj, key=order))
    elif isinstance(obj, (list, tuple, deque, *VIEWS)):
        yield from enumerate(obj)
        if isinstance(obj, deque):
            yield ".maxlen", obj.maxlen
    elif isinstance(obj, functools.partial):
        yield from ((".func", obj.func), (".args", obj.args), (".keywords", obj.keywords))
    yield from attributes(obj)


def is_whole(obj: object) -> bool:
    """Whether no move may replace the object: a class, a function, a module, a member of an enum, an array."""
    whole = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum, np.ndarray, np.generic)
    return isinstance(obj, whole)


def addresses(tensor: Tensor) -> list[int]:
    """For each element the byte of the storage that it begins at."""
    if tensor.numel() == 0:
        return []
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    elements = torch.arange(last + 1, device="cpu").as_strided(tuple(tensor.shape), tensor.stride()).flatten().tolist()
    return [(tensor.storage_offset() + element) * tensor.element_size() for element in elements]


def has_storage(tensor: Tensor) -> bool:
    return tensor.layout == DENSE and not tensor.is_nested


def content(tensor: Tensor) -> object:
    if tensor.is_nested:
        return [part.tolist() for part in tensor.detach().unbind()]
    plain = tensor.detach() if tensor.layout == DENSE else tensor.detach().to_dense()
    return repr(plain.tolist())


class Portrait(list):
    """What an object is made of: of each part its type, what it says of itself, and its own parts by number.

    A list, so that pytest shows the first difference of two.

    Attributes:
        tensors: The tensors in it, each once.
    """

    def __init__(self, root: object, *, values: bool = True, exact: bool = False) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []
        self._values, self._exact = values, exact
        self._number(root)
        for obj in self._kept:  # which grows meanwhile
            seen = []
            for key, part in () if is_whole(obj) else parts(obj):
                plain = isinstance(part, PLAIN) and not hasattr(part, "__dict__")
                seen.append((key, type(part), repr(part)) if plain else (key, self._number(part)))
            self.append((type(obj), *self._says(obj), tuple(seen)))
        self += self._storages()

    def _number(self, obj: object) -> int:
        if id(obj) not in self._seen:
            self._kept.append(obj)
            if isinstance(obj, Tensor):
                self.tensors.append(obj)
        return self._seen.setdefault(id(obj), len(self._seen))

    def _says(self, obj: object) -> Iterator[object]:
        if self._exact or is_whole(obj):
            yield id(obj)
        if isinstance(obj, PLAIN):
            yield repr(obj)
        if isinstance(obj, Tensor):
            yield from (obj.dtype, tuple(obj.shape), obj.layout, obj.is_nested, obj.requires_grad, obj.is_leaf)
            if obj.dim() == 4:
                yield obj.is_contiguous(memory_format=torch.channels_last)
            if self._values:
                yield content(obj)
            if self._exact:
                yield from (str(obj.device), obj._version)

    def _storages(self) -> Iterator[tuple[object, ...]]:
        """Which tensors share a storage, and how they lie in it.

        Ranks of addresses, not addresses: a view that is alone in its storage may leave the rest of it behind.
        """
        groups: dict[int, list[tuple[int, list[int]]]] = {}
        for number, tensor in enumerate(self.tensors):
            if has_storage(tensor):
                storage = tensor.untyped_storage()
                groups.setdefault(storage._cdata, []).append((number, addresses(tensor)))
        for members in groups.values():
            ranks = {byte: rank for rank, byte in enumerate(sorted({byte for _, each in members for byte in each}))}
            yield tuple((number, tuple(ranks[byte] for byte in each)) for number, each in members)


@pytest.fixture
def cuda() -> Iterator[str]:
    """The first of two rehearsed CUDA devices."""
    with wherry.rehearse("cuda", count=2):
        yield "cuda:0"


@pytest.fixture(scope="session")  # or hypothesis would say that it is not made anew for each example
def portrait() -> type[Portrait]:
    return Portrait


@pytest.fixture
def untouched() -> Callable[[object], Callable[[], bool]]:
    """Remembers an object to the last bit, and tells later whether it is still that."""

    def remember(obj: Any) -> Callable[[], bool]:
        before = Portrait(obj, exact=True)
        return lambda: Portrait(obj, exact=True) == before

    return remember
