"""Everything that people put in a batch arrives, and nothing of it is lost: one row for each kind of container.

The rows are those of which other libraries leave tensors behind, break or lose something: dataclasses of every kind, plain
objects, containers with attributes of their own, sets, cycles. Each is moved to "meta" and to a rehearsed CUDA device.
"""

from __future__ import annotations

import argparse
import copy
import enum
import functools
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import rnn
from torch.utils import _pytree

import wherry
from wherry import move


def t(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of values 1, 2, 3, ... A shape of its own for each tensor of a case, by which sets tell them apart."""
    return torch.arange(1, torch.Size(shape).numel() + 1).reshape(shape).to(dtype)


# Containers as people define them


class Point(NamedTuple):
    x: Tensor
    y: object = None


Pair = namedtuple("Pair", "first second")  # noqa: PYI024 - as older programs have it


class Labelled(Pair):
    """A namedtuple's subclass, which has a dictionary: `label` is set after it was made."""


@dataclass
class Batch:
    x: Tensor
    y: object = None


@dataclass(slots=True)
class SlotsBatch:
    x: Tensor
    y: object = None


@dataclass(frozen=True)
class FrozenBatch:
    x: Tensor
    y: object = None


@dataclass(frozen=True, slots=True)
class FrozenSlotsBatch:
    x: Tensor
    y: object = None


@dataclass
class LateBatch:
    """A field that its constructor does not take."""

    x: Tensor
    mask: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mask = self.x > 1


@dataclass
class FactoryBatch:
    x: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict, kw_only=True)


@dataclass
class StrictBatch:
    """A constructor that nobody may call a second time: it adds to what it was given."""

    x: Tensor

    def __post_init__(self) -> None:
        self.x = torch.cat([self.x, self.x])


@dataclass
class Derived(Batch):
    z: object = None


class Plain:
    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.inner = {"y": [t(2)]}


class Slotted:
    __slots__ = ("__weakref__", "never", "x")

    def __init__(self, x: Tensor) -> None:
        self.x = x


class MoreSlotted(Slotted):
    __slots__ = ("more",)

    def __init__(self, x: Tensor) -> None:
        super().__init__(x)
        self.more = [t(2)]


class SlottedAndOpen(Slotted):
    """Slots of the base, a dictionary of its own."""


class Guarded:
    """Refuses to have attributes set once it is made."""

    def __init__(self, x: Tensor) -> None:
        self.__dict__["x"] = x

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is read-only")


class Fallback:
    """Answers to every name, as proxies and configurations do."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"no {name}"


class AttributeDict(dict):
    """A dict whose items are its attributes too."""

    def __getattr__(self, name: str) -> object:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value


class TaggedDict(dict):
    pass


class TaggedList(list):
    pass


class TaggedTuple(tuple):  # noqa: SLOT001 - its instances have a dictionary: that is the case
    pass


class TaggedSet(set):
    pass


class NeedyDict(dict):
    """Cannot be made from its items alone."""

    def __init__(self, schema: str, **items: object) -> None:
        super().__init__(**items)
        self.schema = schema


class NeedyTuple(tuple):  # noqa: SLOT001
    """Takes its elements one by one, and a unit."""

    def __new__(cls, unit: str, *elements: object) -> NeedyTuple:
        made = super().__new__(cls, elements)
        made.unit = unit  # type: ignore[attr-defined]
        return made


class NeedyList(list):
    def __init__(self, unit: str, *elements: object) -> None:
        super().__init__(elements)
        self.unit = unit


class LoudDict(dict):
    """Whose own methods change what is written and read."""

    def __setitem__(self, key: object, value: object) -> None:
        raise TypeError("write-protected")

    def __iter__(self) -> Iterator[object]:
        raise TypeError("nobody reads")


class Returning:
    """An object with `.to` that gives a new object, as transforms and batches of libraries do."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, device: object, *_: object, **__: object) -> Returning:
        return Returning(self.x.to(device))


class InPlace:
    """An object with `.to` that moves its parts and returns nothing."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.inside = [t(2)]

    def to(self, device: object, *_: object, **__: object) -> None:
        self.x = self.x.to(device)
        self.inside[0] = self.inside[0].to(device)


class Fluent(InPlace):
    """An object with `.to` that moves its parts and returns itself."""

    def to(self, device: object, *_: object, **__: object) -> Fluent:  # type: ignore[override]
        super().to(device)
        return self


class DeviceOnly(InPlace):
    """An object whose `.to` takes the device and nothing else."""

    def to(self, device: object) -> DeviceOnly:  # type: ignore[override]
        super().to(device)
        return self


class Sealed:
    """A container whose contents no attribute shows; it is registered with torch's pytrees."""

    __slots__ = ("_open",)

    def __init__(self, *tensors: Tensor, note: str = "") -> None:
        self._open = lambda: (tensors, note)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self._open()[0]

    @property
    def note(self) -> str:
        return self._open()[1]


_pytree.register_pytree_node(
    Sealed,
    lambda sealed: (list(sealed.tensors), sealed.note),
    lambda tensors, note: Sealed(*tensors, note=note),
    serialized_type_name=f"{__name__}.Sealed",
)


class Split(enum.Enum):
    TRAIN = "train"


class Mode(str, enum.Enum):
    FAST = "fast"


def extra(obj: Any, **more: object) -> Any:
    """The object with attributes that its class does not know."""
    vars(obj).update(more)
    return obj


def without(obj: Any, name: str) -> Any:
    delattr(obj, name)
    return obj


def default_dict() -> defaultdict[str, list[Tensor]]:
    made: defaultdict[str, list[Tensor]] = defaultdict(list)
    made["a"].append(t(2))
    return made


@dataclass(frozen=True)
class Case:
    """A kind of container.

    Attributes:
        build: Makes one.
        tensors: The tensors that a user finds in it, all of which must arrive.
        check: What else must hold of what has arrived.
    """

    build: Callable[[], Any]
    tensors: Callable[[Any], Sequence[Tensor]]
    check: Callable[[Any], bool] = lambda _: True


X = lambda o: [o.x]  # noqa: E731 - a column of the table
XY = lambda o: [o.x, o.y]  # noqa: E731
BOTH = lambda o: [o[0], o[1]]  # noqa: E731
A = lambda o: [o["a"]]  # noqa: E731

CASES: dict[str, Case] = {
    # The builtin ones
    "a tensor": Case(lambda: t(2), lambda o: [o]),
    "dict": Case(lambda: {"a": t(2), "n": 1, "s": "text"}, A, lambda o: list(o) == ["a", "n", "s"]),
    "dict in an order that is not sorted": Case(
        lambda: {"z": t(2), "a": t(3)}, lambda o: [o["z"], o["a"]], lambda o: list(o) == ["z", "a"]
    ),
    "dict with keys of every kind": Case(
        lambda: {1: t(2), None: t(3), ("x", 2): t(4), Split.TRAIN: t(5)},
        lambda o: [o[1], o[None], o["x", 2], o[Split.TRAIN]],
    ),
    "list": Case(lambda: [t(2), t(3)], BOTH),
    "tuple": Case(lambda: (t(2), t(3)), BOTH),
    "empty containers": Case(
        lambda: [t(2), [], {}, (), set(), deque()],
        lambda o: o[:1],
        lambda o: [type(e) for e in o[1:]] == [list, dict, tuple, set, deque],
    ),
    "namedtuple": Case(lambda: Point(t(2), t(3)), XY, lambda o: type(o) is Point),
    "namedtuple, the older way": Case(lambda: Pair(t(2), t(3)), BOTH, lambda o: o.second is o[1]),
    "namedtuple's subclass with an attribute": Case(
        lambda: extra(Labelled(t(2), t(3)), label="left", at=t(4)), lambda o: [*o, o.at], lambda o: o.label == "left"
    ),
    "OrderedDict": Case(
        lambda: OrderedDict(b=t(2), a=t(3)),
        lambda o: [o["b"], o["a"]],
        lambda o: type(o) is OrderedDict and list(o) == ["b", "a"] and list(reversed(o)) == ["a", "b"],
    ),
    "torch.return_types": Case(
        lambda: t(2, 3).max(dim=1),
        lambda o: [o.values, o.indices],
        lambda o: type(o) is torch.return_types.max,
    ),
    "None, numbers and text": Case(
        lambda: [None, 1, 1.5, True, "a", b"b", 1j, ..., NotImplemented, torch.float16, torch.Size([2]), slice(3)],
        lambda _: [],
        lambda o: o[9] is torch.float16 and type(o[10]) is torch.Size,
    ),
    "members of enums": Case(
        lambda: {"a": t(2), "split": Split.TRAIN, "mode": Mode.FAST},
        A,
        lambda o: o["split"] is Split.TRAIN and o["mode"] is Mode.FAST,
    ),
    "a class as a value": Case(lambda: {"a": t(2), "kind": nn.Linear}, A, lambda o: o["kind"] is nn.Linear),
    "a function as a value": Case(lambda: {"a": t(2), "f": copy.copy}, A, lambda o: o["f"] is copy.copy),
    "numpy arrays": Case(
        lambda: {"a": t(2), "ids": np.arange(3), "one": np.float32(1)}, A, lambda o: type(o["ids"]) is np.ndarray
    ),
    # Dataclasses
    "dataclass": Case(lambda: Batch(t(2), t(3)), XY, lambda o: type(o) is Batch),
    "dataclass with slots": Case(lambda: SlotsBatch(t(2), t(3)), XY),
    "dataclass, frozen": Case(lambda: FrozenBatch(t(2), t(3)), XY),
    "dataclass, frozen with slots": Case(lambda: FrozenSlotsBatch(t(2), t(3)), XY),
    "dataclass with a field that is not in its constructor": Case(lambda: LateBatch(t(2)), lambda o: [o.x, o.mask]),
    "dataclass with a field that was never set": Case(
        lambda: without(LateBatch(t(2)), "mask"), X, lambda o: not hasattr(o, "mask")
    ),
    "dataclass with a keyword and a factory": Case(
        lambda: FactoryBatch(t(2), extras={"y": t(3)}), lambda o: [o.x, o.extras["y"]]
    ),
    "dataclass whose constructor works": Case(lambda: StrictBatch(t(2)), X, lambda o: o.x.shape == (4,)),
    "dataclass of a dataclass": Case(lambda: Derived(t(2), t(3), t(4)), lambda o: [o.x, o.y, o.z]),
    "dataclass with an attribute more": Case(
        lambda: extra(Batch(t(2), t(3)), z=t(4), note="n"), lambda o: [o.x, o.y, o.z], lambda o: o.note == "n"
    ),
    "frozen dataclass with an attribute more": Case(
        lambda: extra(FrozenBatch(t(2), t(3)), z=t(4)), lambda o: [o.x, o.y, o.z]
    ),
    # Other objects
    "plain object": Case(lambda: Plain(t(3)), lambda o: [o.x, o.inner["y"][0]]),
    "object with slots": Case(lambda: Slotted(t(3)), X, lambda o: not hasattr(o, "never")),
    "object with slots of two classes": Case(lambda: MoreSlotted(t(3)), lambda o: [o.x, o.more[0]]),
    "object with slots and a dictionary": Case(
        lambda: extra(SlottedAndOpen(t(3)), y=t(2)), XY, lambda o: not hasattr(o, "never")
    ),
    "object that refuses to be changed": Case(lambda: Guarded(t(3)), X),
    "object that answers to every name": Case(lambda: Fallback(t(3)), X, lambda o: o.other == "no other"),
    "SimpleNamespace": Case(lambda: types.SimpleNamespace(x=t(2), y=t(3)), XY),
    "argparse.Namespace": Case(lambda: argparse.Namespace(x=t(2), y=t(3), lr=0.1), XY, lambda o: o.lr == 0.1),
    "object with .to that returns": Case(lambda: Returning(t(3)), X, lambda o: type(o) is Returning),
    "object with .to in place": Case(lambda: InPlace(t(3)), lambda o: [o.x, o.inside[0]]),
    "object with .to that returns itself": Case(lambda: Fluent(t(3)), lambda o: [o.x, o.inside[0]]),
    "object with .to of one argument": Case(lambda: DeviceOnly(t(3)), lambda o: [o.x, o.inside[0]]),
    "object with .to in a list": Case(lambda: [InPlace(t(3)), 1], lambda o: [o[0].x, o[0].inside[0]]),
    "functools.partial": Case(
        lambda: functools.partial(torch.add, t(2), alpha=2, other=[t(3)]),
        lambda o: [o.args[0], o.keywords["other"][0]],
        lambda o: o.func is torch.add and o.keywords["alpha"] == 2,
    ),
    "registered pytree node": Case(
        lambda: Sealed(t(2), t(3), note="n"), lambda o: o.tensors, lambda o: type(o) is Sealed and o.note == "n"
    ),
    # Containers that are more than their items
    "defaultdict": Case(
        default_dict, lambda o: [o["a"][0]], lambda o: o.default_factory is list and o["missing"] == [] and len(o) == 2
    ),
    "defaultdict with an attribute": Case(lambda: defaultdict(lambda: 0, a=t(2)), A, lambda o: o["missing"] == 0),
    "Counter": Case(lambda: [t(2), Counter("abb")], lambda o: o[:1], lambda o: o[1].most_common(1) == [("b", 2)]),
    "UserDict": Case(lambda: UserDict(a=t(2)), A, lambda o: type(o) is UserDict),
    "UserList": Case(lambda: UserList([t(2), t(3)]), BOTH, lambda o: type(o) is UserList),
    "ChainMap": Case(
        lambda: ChainMap({"a": t(2)}, {"a": t(3), "b": t(4)}),
        lambda o: [o["a"], o["b"], o.maps[1]["a"]],
        lambda o: len(o.maps) == 2,
    ),
    "MappingProxyType": Case(lambda: types.MappingProxyType({"a": t(2)}), A),
    "dict.values()": Case(lambda: {"a": t(2), "b": t(3)}.values(), list),  # noqa: PLW0108 - each its own dict
    "dict.items()": Case(lambda: {"a": t(2)}.items(), lambda o: [dict(o)["a"]]),  # noqa: PLW0108
    "dict subclass with an attribute": Case(
        lambda: extra(TaggedDict(a=t(2)), tag="t", at=t(3)), lambda o: [o["a"], o.at], lambda o: o.tag == "t"
    ),
    "list subclass with an attribute": Case(
        lambda: extra(TaggedList([t(2)]), tag="t", at=t(3)), lambda o: [o[0], o.at], lambda o: o.tag == "t"
    ),
    "tuple subclass with an attribute": Case(
        lambda: extra(TaggedTuple([t(2)]), tag="t", at=t(3)), lambda o: [o[0], o.at], lambda o: o.tag == "t"
    ),
    "set subclass with an attribute": Case(
        lambda: extra(TaggedSet([t(2)]), tag="t", at=t(3)), lambda o: [*o, o.at], lambda o: o.tag == "t"
    ),
    "dict subclass whose items are attributes": Case(
        lambda: AttributeDict(x=t(2), y=AttributeDict(x=t(3))),
        lambda o: [o.x, o.y.x],
        lambda o: type(o.y) is AttributeDict,
    ),
    "dict subclass that needs arguments": Case(
        lambda: NeedyDict("v1", a=t(2)), A, lambda o: o.schema == "v1" and type(o) is NeedyDict
    ),
    "tuple subclass that needs arguments": Case(
        lambda: NeedyTuple("mm", t(2), t(3)), BOTH, lambda o: o.unit == "mm" and type(o) is NeedyTuple
    ),
    "list subclass that needs arguments": Case(lambda: NeedyList("mm", t(2), t(3)), BOTH, lambda o: o.unit == "mm"),
    "dict subclass with methods of its own": Case(lambda: LoudDict(a=t(2)), A),
    "deque with maxlen": Case(lambda: deque([t(2), t(3)], maxlen=2), BOTH, lambda o: o.maxlen == 2),
    "deque without maxlen": Case(lambda: deque([t(2), t(3)]), BOTH, lambda o: o.maxlen is None),
    "set": Case(lambda: {t(2), t(3), "s"}, lambda o: [e for e in o if e != "s"]),
    "frozenset": Case(lambda: frozenset([t(2), t(3)]), list),
    "frozenset as a key": Case(lambda: {frozenset(["k"]): t(2)}, lambda o: [o[frozenset(["k"])]]),
    # Of torch
    "Parameter": Case(lambda: [nn.Parameter(t(2))], lambda o: o, lambda o: type(o[0]) is nn.Parameter and o[0].is_leaf),
    "frozen Parameter": Case(lambda: nn.Parameter(t(2), requires_grad=False), lambda o: [o]),
    "Buffer": Case(lambda: [nn.Buffer(t(2), persistent=False)], lambda o: o, lambda o: not o[0].persistent),
    "complex": Case(lambda: t(2, dtype=torch.complex64), lambda o: [o]),
    "conjugated": Case(lambda: (t(2) * (1 + 1j)).conj(), lambda o: [o]),  # noqa: PLW0108
    "bfloat16, float8, bool, uint8, int64": Case(
        lambda: [t(2).to(d) for d in (torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.uint8, torch.int64)], list
    ),
    "0-dim": Case(lambda: [torch.tensor(1.5), torch.tensor(2)], list),
    "empty": Case(lambda: [torch.empty(0), torch.empty(2, 0, 3)], list),
    "sparse COO": Case(lambda: torch.eye(3).to_sparse(), lambda o: [o], lambda o: o.layout is torch.sparse_coo),
    "Normal": Case(lambda: torch.distributions.Normal(t(2), t(2)), lambda o: [o.loc, o.scale, o.mean, o.stddev]),
    "Categorical": Case(lambda: torch.distributions.Categorical(logits=t(3)), lambda o: [o.logits, o.probs]),
    "Independent": Case(
        lambda: torch.distributions.Independent(torch.distributions.Normal(t(2), t(2)), 1),
        lambda o: [o.base_dist.loc, o.mean],
    ),
}
ALL = pytest.mark.parametrize("name", CASES)
OPAQUE = {"registered pytree node"}  # its parts are in a closure, where no portrait sees them


@pytest.fixture(params=["meta", "cuda:1"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with wherry.rehearse("cuda", count=2):
        yield request.param


@ALL
def test_every_tensor_arrives(name: str, device: str) -> None:
    row = CASES[name]
    obj = row.build()

    moved = move(obj, device)

    found = row.tensors(moved)
    assert len(found) == len(row.tensors(obj))
    assert {str(tensor.device) for tensor in found} <= {device}


@ALL
def test_a_container_keeps_its_type_its_attributes_and_its_order(name: str, device: str, portrait: Any) -> None:
    row = CASES[name]
    obj = row.build()

    moved = move(obj, device)

    assert type(moved) is type(obj)
    assert name in OPAQUE or portrait(moved, values=False) == portrait(obj, values=False)
    assert row.check(moved)


@ALL
def test_values_are_those_that_were_sent(name: str, cuda: str) -> None:
    row = CASES[name]
    obj = row.build()

    moved = move(obj, cuda)

    for there, here in zip(by_shape(row.tensors(moved)), by_shape(row.tensors(obj)), strict=True):
        assert there.dtype == here.dtype
        assert content(there) == content(here)


@ALL
def test_the_input_is_not_changed(name: str, device: str, untouched: Any) -> None:
    obj = CASES[name].build()
    is_untouched = untouched(obj)

    move(obj, device)

    assert is_untouched()


@ALL
def test_what_is_there_already_is_the_very_same_object(name: str) -> None:
    obj = CASES[name].build()

    assert move(obj, "cpu") is obj


@ALL
def test_a_second_move_gives_the_very_same_object(name: str, device: str) -> None:
    moved = move(CASES[name].build(), device)

    assert move(moved, device) is moved


@ALL
def test_a_copy_has_tensors_of_its_own(name: str) -> None:
    row = CASES[name]
    obj = row.build()
    tensors = row.tensors(obj)

    copied = move(obj, "cpu", copy=True)

    assert type(copied) is type(obj)
    assert not {id(tensor) for tensor in tensors} & {id(tensor) for tensor in row.tensors(copied)}
    assert not tensors or copied is not obj


def by_shape(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Sets have an order of their own; everything else has one that these cases keep by their shapes."""
    return sorted(tensors, key=lambda tensor: (tensor.dim(), str(tensor.shape), str(tensor.dtype)))


def content(tensor: Tensor) -> object:
    return tensor.detach().cpu().to_dense().tolist()


# What has rules of its own


LAYOUTS = [pytest.param(torch.jagged, marks=pytest.mark.slow), torch.strided]  # the first one loads much of torch


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_arrive_with_all_their_parts(layout: torch.layout, cuda: str) -> None:
    here = torch.nested.nested_tensor([t(2), t(3)], layout=layout)

    there = move({"a": here}, cuda)["a"]

    assert str(there.device) == cuda
    assert there.layout == layout
    assert [part.tolist() for part in there.unbind()] == [[1, 2], [1, 2, 3]]
    assert {str(part.device) for part in there.unbind()} == {cuda}


COMPRESSED: dict[str, Callable[[], Tensor]] = {
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "csc": lambda: torch.eye(4).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "coo that is not coalesced": lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (4,), check_invariants=True),
}


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR) tensor support is in beta")
def test_sparse_tensors_keep_their_layout(name: str, cuda: str) -> None:
    here = COMPRESSED[name]()

    there = move([here], cuda)[0]

    assert str(there.device) == cuda
    assert there.layout == here.layout
    assert there.layout is not torch.sparse_coo or there.is_coalesced() == here.is_coalesced()
    assert content(there) == content(here)


def test_a_packed_sequence_keeps_its_type_and_its_sizes_on_the_host(device: str) -> None:
    """`pack` on a device needs `batch_sizes` on the CPU; torch's own `.to` leaves them there too."""
    packed = rnn.pack_sequence([t(2), t(4), t(3)], enforce_sorted=False)

    moved = move({"x": packed}, device)["x"]

    assert type(moved) is rnn.PackedSequence
    assert moved.batch_sizes.device.type == "cpu"
    assert {str(part.device) for part in (moved.data, moved.sorted_indices, moved.unsorted_indices)} == {device}
    assert packed.data.device.type == "cpu"


def test_a_packed_sequence_is_unpacked_where_it_arrived(cuda: str) -> None:
    moved = move(rnn.pack_sequence([t(2), t(4)], enforce_sorted=False), cuda)

    padded, lengths = rnn.pad_packed_sequence(moved, batch_first=True)

    assert str(padded.device) == cuda
    assert padded.tolist() == [[1, 2, 0, 0], [1, 2, 3, 4]]
    assert lengths.tolist() == [2, 4]


def test_a_packed_sequence_that_is_there_is_the_same_object() -> None:
    packed = rnn.pack_sequence([t(2)])

    assert move(packed, "cpu") is packed


def test_a_module_in_a_dict_moves_in_place(device: str) -> None:
    model = nn.Linear(2, 2)

    moved = move({"model": model, "x": t(2)}, device)

    assert moved["model"] is model
    assert {str(part.device) for part in (model.weight, model.bias, moved["x"])} == {device}


def test_an_optimizer_in_a_dict_moves_in_place(device: str) -> None:
    weight = nn.Parameter(t(2))
    optimizer = torch.optim.SGD([weight], momentum=0.9)
    weight.sum().backward()
    optimizer.step()

    moved = move({"optimizer": optimizer}, device)

    assert moved["optimizer"] is optimizer
    assert str(optimizer.state[weight]["momentum_buffer"].device) == device


def tied(obj: Any, tie: Callable[[Any], object]) -> Any:
    """The object after `tie` has put it inside of itself."""
    tie(obj)
    return obj


CYCLES: dict[str, Callable[[Tensor], Any]] = {
    "list": lambda x: tied([x], lambda o: o.append(o)),
    "dict": lambda x: tied({"x": x}, lambda o: o.update(me=o)),
    "list in a tuple": lambda x: tied([], lambda o: o.append((o, x))),
    "tuple in a list": lambda x: tied([], lambda o: o.append((o, x)))[0],
    "deque": lambda x: tied(deque([x]), lambda o: o.append(o)),
    "object": lambda x: tied(types.SimpleNamespace(x=x), lambda o: extra(o, me=o)),
    "frozen dataclass": lambda x: tied(FrozenBatch(x), lambda o: extra(o, me=o)),
    "frozen dataclass with slots": lambda x: tied([], lambda o: o.append(FrozenSlotsBatch(x, o)))[0],
    "two objects": lambda x: tied(types.SimpleNamespace(x=x), lambda o: extra(o, other=Batch(x, o))),
    "UserDict": lambda x: tied(UserDict(x=x), lambda o: o.update(me=o)),
    "partial": lambda x: tied([x], lambda o: o.append(functools.partial(print, o, x=o))),
    "mapping proxy": lambda x: tied({"x": x}, lambda o: o.update(me=types.MappingProxyType(o))),
    "tensor that holds itself": lambda x: tied(x, lambda o: extra(o, me=[o])),
}


@pytest.mark.parametrize("name", CYCLES)
def test_a_cycle_arrives_as_a_cycle(name: str, device: str, portrait: Any) -> None:
    cycle = CYCLES[name](t(2))

    moved = move(cycle, device)

    found = portrait(moved, values=False)
    assert found == portrait(cycle, values=False)
    assert [str(tensor.device) for tensor in found.tensors] == [device]


DEEP: dict[str, Callable[[Any], Any]] = {
    "list": lambda o: [o],
    "dict": lambda o: {"next": o},
    "tuple": lambda o: (o,),
    "namedtuple": Point,
    "dataclass": lambda o: Batch(None, o),
    "frozen dataclass": lambda o: FrozenBatch(None, o),
    "object": lambda o: types.SimpleNamespace(next=o),
    "deque": lambda o: deque([o]),
}


@pytest.mark.parametrize("name", DEEP)
def test_depth_does_not_end_a_move(name: str) -> None:
    """Five thousand levels are five times what Python's own recursion takes."""
    x = t(2)
    deep = nest(DEEP[name], x, 5_000)

    moved = move(deep, "meta")

    assert innermost(moved).device.type == "meta"
    assert innermost(deep) is x


@pytest.mark.slow
def test_a_depth_of_100_000_is_moved() -> None:
    moved = move(nest(DEEP["list"], t(2), 100_000), "meta")

    assert innermost(moved).device.type == "meta"


@pytest.mark.slow
def test_a_million_leaves_are_moved() -> None:
    shared = torch.arange(1000)
    leaves = [[shared[i], i, "text", None] for i in range(1000) for _ in range(250)]

    moved = move(leaves, "meta")

    assert len(moved) == 250_000
    assert {type(row[0]) for row in moved} == {Tensor}
    assert all(row[0].device.type == "meta" for row in moved)
    assert len({row[0].untyped_storage()._cdata for row in moved}) == 1


def nest(wrap: Callable[[Any], Any], obj: Any, depth: int) -> Any:
    for _ in range(depth):
        obj = wrap(obj)
    return obj


def innermost(obj: Any) -> Tensor:
    while not isinstance(obj, Tensor):
        obj = DOWN[type(obj)](obj)
    return obj


DOWN: dict[type, Callable[[Any], Any]] = {
    list: lambda o: o[0],
    tuple: lambda o: o[0],
    deque: lambda o: o[0],
    Point: lambda o: o.x,
    dict: lambda o: o["next"],
    Batch: lambda o: o.y,
    FrozenBatch: lambda o: o.y,
    types.SimpleNamespace: lambda o: o.next,
}
