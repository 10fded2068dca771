"""Any nesting survives the way to a device and back: structure, aliases, cycles, dtypes, values and shared storages."""

from __future__ import annotations

import itertools
import types
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import wherry
from wherry import move


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Sample:
    first: Any
    second: Any = None


@dataclass(frozen=True, slots=True)
class Fixed:
    first: Any
    second: Any = None


class Tagged(Tensor):
    """A subclass whose instances carry something."""


DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.complex64,
)

# From a storage of twelve values.
CUTS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x,
    lambda x: x[:4],
    lambda x: x[4:],
    lambda x: x[2:7],
    lambda x: x[::3],
    lambda x: x.view(3, 4),
    lambda x: x.view(3, 4).t(),
    lambda x: x.view(3, 4)[:, 1:3],
    lambda x: x.view(1, 2, 3, 2).to(memory_format=torch.channels_last),
    lambda x: x[:1].expand(5, 1),
    lambda x: x[:3].expand(2, 3),
    lambda x: x.unfold(0, 4, 2),
    lambda x: x[3],
    lambda x: x[:0],
    lambda x: x.view(3, 4)[:, :0],
)


def tagged(x: Tensor) -> Tensor:
    made = x.as_subclass(Tagged)
    made.tag = ["tag"]
    made.twin = x
    return made


# What a tensor is beside its values; the first ones are for every dtype.
KINDS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x,
    tagged,
    lambda x: nn.Parameter(x, requires_grad=False),
    nn.Parameter,
    lambda x: x.requires_grad_(),
)


# Each makes a container of a list of parts.
CONTAINERS: tuple[Callable[[list[Any]], Any], ...] = (
    list,
    tuple,
    deque,
    lambda parts: deque(parts, maxlen=7),
    lambda parts: dict(zip("abcd", parts, strict=False)),
    lambda parts: OrderedDict(zip("dcba", parts, strict=False)),
    lambda parts: defaultdict(list, enumerate(parts)),
    lambda parts: UserDict(zip("abcd", parts, strict=False)),
    lambda parts: Pair(parts, len(parts)),
    lambda parts: Pair(*parts[:1] * 2) if parts else Pair(1, 2),
    lambda parts: Sample(*parts[:2]) if parts else Sample(None),
    lambda parts: Fixed(*parts[:2]) if parts else Fixed(None),
    lambda parts: types.SimpleNamespace(**dict(zip("abcd", parts, strict=False))),
    lambda parts: types.MappingProxyType(dict(zip("abcd", parts, strict=False))),
)


@st.composite
def storages(draw: st.DrawFn, number: int) -> list[Tensor]:
    """Tensors over one storage of values that no other storage has."""
    dtype = draw(st.sampled_from(DTYPES))
    base = torch.arange(12 * number, 12 * number + 12).to(dtype)
    kinds = KINDS if dtype.is_floating_point else KINDS[:3]
    cuts = draw(st.lists(st.tuples(st.sampled_from(CUTS), st.sampled_from(kinds)), min_size=1, max_size=3))
    return [kind(cut(base).detach()) for cut, kind in cuts]


@st.composite
def structures(draw: st.DrawFn) -> list[Any]:
    """Objects that hold one another, in any direction, and more than once."""
    made: list[Any] = [None, 1.5, "text", True]
    for number in range(draw(st.integers(1, 3))):
        made += draw(storages(number))
    for _ in range(draw(st.integers(0, 6))):
        parts = draw(st.lists(st.sampled_from(made), max_size=4))
        made.append(draw(st.sampled_from(CONTAINERS))(parts))
    # Elements of sets are known by their shapes, so each is a tensor that is nowhere else.
    lengths = itertools.count(20)
    for kind in draw(st.lists(st.sampled_from([set, frozenset]), max_size=2)):
        made.append(kind([torch.ones(next(lengths)), torch.ones(next(lengths), dtype=torch.int64), "text"]))
    knots = [each for each in made if isinstance(each, list)]
    for knot in draw(st.lists(st.sampled_from(knots), max_size=2)) if knots else ():
        knot.append(draw(st.sampled_from(made)))
    return made[-draw(st.integers(1, 8)) :]


few = settings(max_examples=60)


@pytest.mark.slow
@few
@given(obj=structures(), backend=st.sampled_from(["cuda", "xpu"]))
def test_a_round_trip_changes_nothing(obj: Any, backend: str, portrait: Any) -> None:
    with wherry.rehearse(backend):
        back = move(move(obj, backend), "cpu")

    assert portrait(back) == portrait(obj)


@pytest.mark.slow
@few
@given(obj=structures())
def test_everything_arrives_and_nothing_grows(obj: Any, portrait: Any) -> None:
    with wherry.rehearse("cuda"):
        there = portrait(move(obj, "cuda"))

        assert {str(tensor.device) for tensor in there.tensors} <= {"cuda:0"}
        assert there == portrait(obj)
        assert total(there.tensors) <= total(portrait(obj).tensors)


@pytest.mark.slow
@few
@given(obj=structures())
def test_the_input_is_left_as_it_was(obj: Any, portrait: Any) -> None:
    before = portrait(obj, exact=True)

    with wherry.rehearse("cuda"):
        move(obj, "cuda")

    assert portrait(obj, exact=True) == before


@pytest.mark.slow
@few
@given(obj=structures())
def test_a_second_move_returns_the_object_of_the_first(obj: Any) -> None:
    with wherry.rehearse("cuda"):
        there = move(obj, "cuda")

        assert move(there, "cuda") is there
    assert move(obj, "cpu") is obj


@pytest.mark.slow
@few
@given(obj=structures())
def test_a_copy_is_equal_and_shares_no_tensor(obj: Any, portrait: Any) -> None:
    copied = portrait(move(obj, "cpu", copy=True))
    original = portrait(obj)

    assert copied == original
    assert not {id(tensor) for tensor in copied.tensors} & {id(tensor) for tensor in original.tensors}
    assert not places(copied.tensors) & places(original.tensors)


@pytest.mark.slow
@few
@given(obj=structures())
def test_meta_has_the_same_structure(obj: Any, portrait: Any) -> None:
    there = portrait(move(obj, "meta"), values=False)

    assert there == portrait(obj, values=False)
    assert {tensor.device.type for tensor in there.tensors} <= {"meta"}


def total(tensors: list[Tensor]) -> int:
    return sum({tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}.values())


def places(tensors: list[Tensor]) -> set[int]:
    """Where the values are; empty storages are all at 0."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors} - {0}


# Were the comparison blind, it would not matter what it compares


def twice(x: Any) -> list[Any]:
    return [x, x]


LOST: dict[str, Callable[[], Any]] = {
    "an alias": lambda: twice(torch.ones(2)),
    "a container's alias": lambda: twice([torch.ones(2)]),
    "a shared storage": lambda: [*torch.ones(2, 2)],
    "a Parameter": lambda: [nn.Parameter(torch.ones(2))],
    "requires_grad": lambda: [torch.ones(2, requires_grad=True)],
    "a subclass's attribute": lambda: [tagged(torch.ones(2))],
    "an expanded tensor": lambda: [torch.ones(1).expand(3)],
}


@pytest.mark.parametrize("name", LOST)
def test_what_pytree_loses_is_noticed(name: str, portrait: Any) -> None:
    obj = LOST[name]()

    moved = tree_map_only(Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), obj)

    assert portrait(moved) != portrait(obj)


def knotted() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


UNLIKE: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "value": (lambda: [torch.ones(2)], lambda: [torch.zeros(2)]),
    "dtype": (lambda: [torch.ones(2)], lambda: [torch.ones(2).double()]),
    "shape": (lambda: [torch.ones(2, 1)], lambda: [torch.ones(1, 2)]),
    "type": (lambda: [torch.ones(2)], lambda: (torch.ones(2),)),
    "order": (lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}),
    "number": (lambda: [1], lambda: [1.0]),
    "maxlen": (lambda: deque([1], maxlen=2), lambda: deque([1])),
    "factory": (lambda: defaultdict(list), lambda: defaultdict(int)),
    "attribute": (lambda: types.SimpleNamespace(a=1), lambda: types.SimpleNamespace(b=1)),
    "slot": (lambda: Fixed(1, 2), lambda: Fixed(2, 1)),
    "layout in memory": (lambda: [torch.ones(2, 2)], lambda: [torch.ones(2, 2).t()]),
    "cycle": (knotted, lambda: [[[]]]),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_a_difference_is_noticed(name: str, portrait: Any) -> None:
    one, other = UNLIKE[name]

    assert portrait(one()) == portrait(one())
    assert portrait(one()) != portrait(other())


def test_a_change_of_the_input_is_noticed(untouched: Any) -> None:
    x = torch.ones(2)
    is_untouched = untouched([x])

    assert is_untouched()
    x.add_(0)
    assert not is_untouched()


def test_a_part_that_was_replaced_by_its_equal_is_noticed(untouched: Any) -> None:
    obj = {"x": [1]}
    is_untouched = untouched(obj)

    obj["x"] = [1]

    assert not is_untouched()
