"""An inventory of an object: every tensor by its path, each storage counted once, and nothing kept alive."""

from __future__ import annotations

import functools
import gc
import json
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import wherry
from wherry import Inventory, where
from wherry.where import Role
from wherry.where.strays import left_behind


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Batch:
    ids: torch.Tensor
    rest: Any = None


class Slotted:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = torch.ones(1)


def listed(inventory: Inventory) -> dict[str, Role]:
    return {entry.path: entry.role for entry in inventory}


def test_a_module() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model(torch.ones(3, 2)).sum().backward()

    found = where(model)

    assert listed(found) == {
        "model[0].weight": Role.PARAMETER,
        "model[0].weight.grad": Role.GRADIENT,
        "model[0].bias": Role.PARAMETER,
        "model[0].bias.grad": Role.GRADIENT,
        "model[1].weight": Role.PARAMETER,
        "model[1].weight.grad": Role.GRADIENT,
        "model[1].bias": Role.PARAMETER,
        "model[1].bias.grad": Role.GRADIENT,
        "model[1].running_mean": Role.BUFFER,
        "model[1].running_var": Role.BUFFER,
        "model[1].num_batches_tracked": Role.BUFFER,
    }
    assert found.nbytes == 2 * (16 + 8 + 8 + 8) + 8 + 8 + 8
    assert {total.name: total.nbytes for total in found.dtypes} == {"float32": 96, "int64": 8}
    assert found.entries[0].requires_grad
    assert not found.entries[-1].requires_grad


CONTAINERS: dict[str, tuple[Any, list[str]]] = {
    "dict": ({"a": 0, 3: 1}, ["batch['a']", "batch[3]"]),
    "list and tuple": ([0, (1,)], ["batch[0]", "batch[1][0]"]),
    "namedtuple": (Pair(0, 1), ["batch.left", "batch.right"]),
    "dataclass": (Batch(0, [1]), ["batch.ids", "batch.rest[0]"]),  # type: ignore[arg-type]
    "namespace": (SimpleNamespace(x=0), ["batch.x"]),
    "deque": (deque([0], maxlen=3), ["batch[0]"]),
    "ordered": (OrderedDict(b=0), ["batch['b']"]),
}


def filled(value: Any) -> Any:
    """The same with tensors for numbers."""
    if isinstance(value, int):
        return torch.ones(1)
    if isinstance(value, dict):
        return type(value)({key: filled(part) for key, part in value.items()})
    if isinstance(value, tuple):
        return type(value)(*map(filled, value)) if hasattr(value, "_fields") else tuple(map(filled, value))
    if isinstance(value, list | deque):
        return type(value)(map(filled, value))
    return type(value)(**{key: filled(part) for key, part in vars(value).items()})


@pytest.mark.parametrize(("value", "paths"), CONTAINERS.values(), ids=CONTAINERS)
def test_paths_are_as_a_person_would_write_them(value: Any, paths: list[str]) -> None:
    batch = filled(value)

    found = where(batch)

    assert [entry.path for entry in found] == paths
    for entry in found:
        assert isinstance(eval(entry.path, {"batch": batch}), torch.Tensor)


def test_slots_sets_functions_and_numpy() -> None:
    bias = torch.ones(1)
    batch = {"slotted": Slotted(), "set": {torch.ones(1)}, "fn": lambda: bias, "array": np.ones(2), "n": 3, "s": "text"}

    assert [entry.path for entry in where(batch)] == [
        "batch['slotted'].x", "batch['set']{...}", "batch['fn'].bias", "batch['array']",
    ]  # fmt: skip


def test_an_optimizer_by_the_names_of_its_parameters() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

    assert listed(where({"optimizer": optimizer, "model": model})) == {
        "state['model'].weight": Role.PARAMETER,
        "state['model'].bias": Role.PARAMETER,
        "state['optimizer'].state[state['model'].weight]['momentum_buffer']": Role.STATE,
        "state['optimizer'].state[state['model'].bias]['momentum_buffer']": Role.STATE,
    }
    assert "optimizer.state[optimizer.param_groups[0]['params'][1]]['momentum_buffer']" in listed(where(optimizer))


def test_each_storage_counts_once() -> None:
    whole = torch.ones(100)

    found = where([whole, whole[:10], whole, whole.expand(5, 100), torch.ones(1).expand(1000)])

    assert found.nbytes == 400 + 4
    assert sum(entry.nbytes for entry in found) == found.nbytes
    assert [shared.paths for shared in found.tied] == [("batch[0]", "batch[2]")]
    assert [(shared.paths, shared.nbytes) for shared in found.aliases] == [(("batch[0]", "batch[1]", "batch[3]"), 400)]
    assert [entry.shares for entry in found] == [None, "batch[0]", "batch[0]", None]


def test_tied_parameters_and_modules() -> None:
    model = nn.Module()
    model.emb, model.head = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
    model.head.weight = model.emb.weight
    model.again = model.head

    found = where(model)

    assert [shared.paths for shared in found.tied] == [
        ("model.head", "model.again"),
        ("model.emb.weight", "model.head.weight"),
    ]
    assert found.aliases == ()
    assert found.nbytes == 24


def test_own_lists_of_parameters_are_no_ties() -> None:
    assert where(nn.LSTM(2, 2)).tied == ()


def test_on_meta_it_holds_nothing_and_says_what_it_would_take() -> None:
    found = where(nn.Linear(100, 10, device="meta"))

    assert (found.nbytes, found.would_be) == (0, 4040)
    assert "(and 3.9 KiB that are not allocated)" in str(found)


def test_a_module_in_a_rehearsal() -> None:
    with wherry.rehearse("cuda"):
        found = where(nn.Linear(2, 2).to("cuda"))

    assert [total.name for total in found.devices] == ["cuda:0"]


def test_nothing_stays_alive() -> None:
    model = nn.Linear(2, 2)
    model.plain = torch.ones(3)
    gone = [weakref.ref(model), weakref.ref(model.plain), weakref.ref(model.weight)]

    found = where(model)
    assert len(found.strays) == 1
    del model
    gc.collect()

    assert [one() for one in gone] == [None, None, None]


class Deep(nn.Module):
    """With something of every kind that a walk goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(64, 64)
        self.inner = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
        self.plain = [torch.ones(3)]
        self.opt = torch.optim.SGD(self.lin.parameters(), momentum=0.9)
        for param in self.lin.parameters():
            self.opt.state[param]["sum"] = torch.ones(2)
        self.odd = functools.partial(torch.add, torch.ones(2))


@pytest.fixture
def _without_collector() -> Iterator[None]:
    Deep()  # the first optimizer of a process imports much, which keeps it until the collector runs
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize(
    "look", [where, left_behind, lambda model: where([model, {"x": model}])], ids=["where", "left_behind", "twice"]
)
def test_what_was_looked_at_goes_when_its_last_name_goes(look: Any) -> None:
    """Without waiting for the garbage collector: memory of a device is to be free when a program says `del`."""
    model = Deep()
    gone = [weakref.ref(model), weakref.ref(model.plain[0]), weakref.ref(model.lin.weight)]
    look(model)
    del model

    assert [one() for one in gone] == [None, None, None]


@pytest.mark.alone
@pytest.mark.usefixtures("_without_collector")
def test_memory_of_the_device_is_free_at_once() -> None:
    with wherry.rehearse("cuda"):
        model = Deep().to("cuda")
        assert torch.cuda.memory_allocated() > 0

        where(model), left_behind(model)
        del model

        assert torch.cuda.memory_allocated() == 0


@pytest.mark.usefixtures("_without_collector")
def test_a_cycle_would_keep_it() -> None:
    """The twin."""
    model = nn.Linear(2, 2)
    gone = weakref.ref(model)
    kept: list[Any] = [model]
    kept.append(kept)
    del model, kept

    assert gone() is not None


def test_a_weak_reference_would_notice() -> None:
    """The twin."""
    model = nn.Linear(2, 2)
    gone = weakref.ref(model)
    kept = [model]
    del model
    gc.collect()

    assert gone() is kept[0]


def test_a_cycle_ends() -> None:
    batch: dict[str, Any] = {"x": torch.ones(1)}
    batch["self"] = batch

    assert [entry.path for entry in where(batch)] == ["batch['x']"]


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)

    __iter__ = __len__ = __eq__ = __hash__ = __repr__ = __getattribute__  # type: ignore[assignment]


class Keyed(dict[str, Any]):
    def items(self) -> Any:
        raise AssertionError

    __iter__ = __getitem__ = __len__ = keys = values = items  # type: ignore[assignment]


class WithProperty(nn.Module):
    @property
    def costly(self) -> Any:
        raise AssertionError

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    def __repr__(self) -> str:
        raise AssertionError


class Meta(type):
    """Of classes that run code, or fail, where they are compared or hashed."""

    def __eq__(cls, other: object) -> bool:
        raise AssertionError

    def __ne__(cls, other: object) -> bool:
        raise AssertionError

    def __instancecheck__(cls, instance: object) -> bool:
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]


class Compared(metaclass=Meta):
    __slots__ = ("__dict__", "s")


class ComparedList(list[Any], metaclass=Meta):
    pass


class ComparedDict(dict[Any, Any], metaclass=Meta):
    pass


class ComparedModule(nn.Module, metaclass=Meta):
    BODY = Compared()


class TensorMeta(Meta, type(torch.Tensor)):  # type: ignore[misc]
    pass


class ComparedTensor(torch.Tensor, metaclass=TensorMeta):
    pass


def test_classes_are_not_compared() -> None:
    odd, model = Compared(), ComparedModule()
    odd.s = [torch.ones(1)]
    odd.__dict__["x"] = torch.ones(1)
    model.lin, model.odd, model.fn = nn.Linear(1, 1, bias=False), odd, functools.partial(max, odd)
    model.opt = torch.optim.SGD(model.lin.parameters())
    model.opt.odd = odd
    mine = torch.ones(1).as_subclass(ComparedTensor)
    mine.odd = odd
    batch = {
        "odd": odd,
        odd: [odd],
        "list": ComparedList([odd, torch.ones(1)]),
        "dict": ComparedDict({odd: torch.ones(1)}),
    }

    assert [entry.path for entry in where(batch, name="batch")] == [
        "batch['odd'].x", "batch['odd'].s[0]", "batch['list'][1]", "batch['dict'][...]",
    ]  # fmt: skip
    assert [stray.path for stray in left_behind(model)] == ["model.odd.x", "model.odd.s[0]"]
    assert [entry.path for entry in where([mine, model, odd])][:2] == ["state[0]", "state[1].lin.weight"]
    assert [entry.path for entry in where(odd)] == ["batch.x", "batch.s[0]"]
    assert where(ComparedModule()).tensors == 0
    wrapped = Wrapping(torch.ones(2), odd)
    assert where(wrapped).nbytes == 8


class Wrapping(torch.Tensor):
    """A tensor made of another one, with other things beside it."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, odd: Any = None) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)
        made._data, made._odd = data, odd
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Wrapping(args[0]._data)
        raise AssertionError(func)


def test_gradient_of_a_tensor_made_of_others_counts() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(Wrapping(torch.ones(2)))
    assert where(model).nbytes == 8

    model.weight.grad = Wrapping(torch.ones(2))

    assert [(entry.path, entry.nbytes) for entry in where(model)] == [("model.weight", 8), ("model.weight.grad", 8)]


def test_code_of_the_program_does_not_run() -> None:
    hostile, keyed, model = Hostile(), Keyed(), nn.Module()
    dict.__setitem__(keyed, "a", torch.ones(1))
    object.__getattribute__(hostile, "__dict__")["x"] = torch.ones(1)
    model.register_buffer("mask", torch.ones(1))
    model.__class__ = WithProperty

    found = where([hostile, keyed, model])

    assert [entry.path for entry in found] == ["state[0].x", "state[1]['a']", "state[2].mask"]
    str(found), found._repr_html_(), json.dumps(found.to_json())


@pytest.mark.slow
def test_nesting_of_any_depth_and_a_tensor_at_each_step() -> None:
    batch: list[Any] = [torch.ones(1)]
    for _ in range(20_000):
        batch = [batch, torch.ones(1)]

    found = where(batch)

    assert found.tensors == 20_001
    assert found.nbytes == 80_004
    deepest = next(entry for entry in found if len(entry.path) > 60_000)
    assert deepest.path == "batch" + "[0]" * 20_001
    assert len(deepest.shown) < 300
    assert len(str(found).splitlines()) < 60
    assert len(json.dumps(found.to_json())) < 20_000_000


@pytest.mark.slow
def test_many_tensors_take_moderate_memory() -> None:
    """20,000 here. A million take 14 s and 540 MiB at the peak (torch 2.13, one core)."""
    import tracemalloc

    batch = [torch.empty(0) for _ in range(20_000)]
    tracemalloc.start()
    try:
        found = where(batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found.tensors == 20_000
    assert peak < 20_000 * 1200
    assert "[0..19999]  x 20,000" in str(found)


leaves = st.sampled_from(["new", "first", "view", 3, None, "text"])
nested = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=25,
)


@given(nested)
def test_totals_are_those_of_the_storages(shape: Any) -> None:
    first = torch.ones(10)
    made: list[torch.Tensor] = []

    def build(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: build(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(build, value))
        if value not in ("new", "first", "view"):
            return value
        made.append({"new": torch.ones(3), "first": first, "view": first[2:]}[value])
        return made[-1]

    batch = {"root": build(shape)}
    found = where(batch)

    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in made}
    assert found.nbytes == sum(storages.values()) == sum(total.nbytes for total in found.dtypes)
    assert found.tensors == len({id(tensor) for tensor in made})
    for entry in found:
        assert any(eval(entry.path, {"batch": batch}) is tensor for tensor in made)
