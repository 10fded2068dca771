"""What is odd about how some classes keep their parts."""

from __future__ import annotations

import threading
import time
import weakref
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from wherry import UnmovableLeaf, move


class AttrDict(dict[str, Any]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


def test_items_that_are_attributes_are_attributes_afterwards() -> None:
    moved = move(AttrDict(x=torch.ones(2)), "meta")
    moved.y = 3

    assert moved.x.is_meta
    assert moved["y"] == 3


@dataclass(frozen=True)
class Key:
    x: Tensor

    def __hash__(self) -> int:
        return hash(tuple(self.x.shape))


@pytest.mark.parametrize(
    "hold",
    [lambda key: {key}, lambda key: frozenset({key}), lambda key: {key: 1}, lambda key: {(key, 1)}],
    ids=["set", "frozenset", "key", "tuple in a set"],
)
def test_an_element_is_whole_before_it_is_asked_for_its_hash(hold: Any) -> None:
    key = Key(torch.ones(2))

    moved = move({"held": hold(key), "again": key}, "meta")

    held = next(iter(moved["held"]))
    assert (held[0] if isinstance(held, tuple) else held) is moved["again"]
    assert moved["again"].x.is_meta


def test_what_the_system_returns_is_copied_as_it_is() -> None:
    found = [time.localtime(0), Path().stat(), torch.ones(2)]

    assert move(found, "cpu", copy=True)[:2] == found[:2]


class Base:
    __slots__ = ("x",)


class Derived(Base):
    __slots__ = ("x", "y")


def test_slots_of_one_name_are_two() -> None:
    obj = Derived()
    obj.x, obj.y = torch.ones(1), 5
    Base.x.__set__(obj, torch.ones(2))

    moved = move(obj, "meta")

    assert (moved.x.shape, Base.x.__get__(moved).shape, moved.y) == ((1,), (2,), 5)
    assert Base.x.__get__(moved).is_meta


class Owner:
    def __init__(self) -> None:
        self.x = torch.ones(2)

    def __del__(self) -> None:
        """It would close what it owns."""


def test_what_cleans_up_behind_itself_is_not_made_twice() -> None:
    batch = {"owner": Owner()}

    with pytest.raises(UnmovableLeaf, match=r"\['owner'\] cannot move to meta: .* has a __del__"):
        move(batch, "meta")

    assert move(batch, "cpu") is batch


def test_arrays_in_a_set_are_refused_by_name() -> None:
    with pytest.raises(UnmovableLeaf, match=r"\['a'\] cannot move to numpy: .*unhashable"):
        move({"a": {torch.ones(2)}}, "numpy")


class Node:
    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.inner = Inner(self)


class Inner:
    def __init__(self, parent: Node) -> None:
        self.parent = weakref.ref(parent)
        self.x = parent.x


def test_a_weak_reference_into_what_moves_leads_to_its_twin() -> None:
    node = Node(torch.ones(2))

    moved = move(node, "meta")

    assert moved.inner.parent() is moved
    assert moved.inner.x is moved.x
    assert node.inner.parent() is node


def test_objects_that_python_makes_in_c_are_copied_as_themselves() -> None:
    odd = [
        torch.Tensor.add,
        str.lower,
        iter([1]),
        threading.Lock(),
        zlib.compressobj(),
        torch.per_tensor_affine,
        "".join,
    ]

    copied = move([odd, torch.ones(2)], "cpu", copy=True)

    assert all(one is other for one, other in zip(copied[0], odd, strict=True))
