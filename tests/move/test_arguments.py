"""The arguments of a move, its destinations, and what it says when something cannot go there."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import wherry
from wherry import DeviceAbsent, UnknownDevice, UnmovableLeaf, WherryError, move


@pytest.fixture
def mps() -> Iterator[str]:
    with wherry.rehearse("mps"):
        yield "mps:0"


def place(tensor: Tensor) -> str:
    return str(tensor.device)


def places(*tensors: Tensor) -> set[str]:
    return {place(tensor) for tensor in tensors}


@dataclass
class Batch:
    x: Any
    labels: Any = None


class Row(NamedTuple):
    x: Any
    labels: Any = None


class Slotted:
    __slots__ = ("labels", "x")

    def __init__(self, x: Any, labels: Any = None) -> None:
        self.x, self.labels = x, labels


# The device


def test_a_device_is_given_as_text_or_as_torch_has_it(cuda: str) -> None:
    for device in ("cuda:1", torch.device("cuda:1"), torch.device("cuda", 1)):
        assert place(move([torch.ones(2)], device)[0]) == "cuda:1"


def test_a_device_without_an_index_is_the_current_one(cuda: str) -> None:
    torch.cuda.set_device(1)

    assert place(move([torch.ones(2)], "cuda")[0]) == "cuda:1"
    assert place(move([torch.ones(2, device="cuda:0")], "cuda")[0]) == "cuda:1"


def test_what_is_on_the_current_device_is_there_without_an_index(cuda: str) -> None:
    batch = [torch.ones(2, device="cuda:0")]

    assert move(batch, "cuda") is batch


def test_the_device_is_what_pick_chose(cuda: str) -> None:
    chosen = wherry.pick()

    assert place(move([torch.ones(2)], chosen)[0]) == chosen


@pytest.mark.parametrize("given", ["cudaa", "cuda:first", "gpus", ""])
def test_a_typo_is_told(given: str) -> None:
    with pytest.raises(UnknownDevice):
        move({"x": torch.ones(2)}, given)


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UnknownDevice, match='"cudaa".*"cuda"'):
        move({"x": torch.ones(2)}, "cudaa")


@pytest.mark.parametrize("obj", [[], {"n": 1}, None])
def test_a_typo_is_told_where_there_is_nothing_to_move(obj: object) -> None:
    with pytest.raises(UnknownDevice):
        move(obj, "cudaa")


def test_a_device_that_is_not_here_is_told() -> None:
    model = nn.Linear(2, 2)

    with wherry.rehearse("cpu"), pytest.raises((DeviceAbsent, UnknownDevice), match='"cuda"'):
        move({"model": model}, "cuda")

    assert place(model.weight) == "cpu"


def test_an_index_beyond_the_last_is_told(cuda: str) -> None:
    with pytest.raises((DeviceAbsent, UnknownDevice), match="cuda:5"):
        move({"x": torch.ones(2)}, "cuda:5")


# dtype


def test_dtype_changes_floating_point_alone(cuda: str) -> None:
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64)

    moved = move([torch.ones(2, dtype=dtype) for dtype in dtypes], cuda, dtype=torch.float16)

    assert [each.dtype for each in moved] == [torch.float16] * 3 + [
        torch.int64,
        torch.bool,
        torch.uint8,
        torch.complex64,
    ]
    assert places(*moved) == {cuda}


def test_dtype_changes_what_is_there_already() -> None:
    ids, x = torch.ones(2, dtype=torch.int64), torch.ones(2)

    moved = move([ids, x], "cpu", dtype=torch.float16)

    assert moved[0] is ids
    assert moved[1].dtype == torch.float16
    assert x.dtype == torch.float32


def test_what_has_the_dtype_already_is_the_same_object() -> None:
    batch = {"x": torch.ones(2, dtype=torch.float16), "ids": torch.arange(2)}

    assert move(batch, "cpu", dtype=torch.float16) is batch


def test_aliases_are_converted_once(cuda: str) -> None:
    x = torch.ones(2)

    moved = move([x, x], cuda, dtype=torch.float16)

    assert moved[0] is moved[1]


def test_dtype_converts_a_module_in_place(cuda: str) -> None:
    model = nn.BatchNorm1d(2)

    moved = move(model, cuda, dtype=torch.float16)

    assert moved is model
    assert model.weight.dtype == model.running_mean.dtype == torch.float16
    assert model.num_batches_tracked.dtype == torch.int64
    assert places(*model.parameters(), *model.buffers()) == {cuda}


# skip


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda y: {"x": torch.ones(2), "labels": y},
    "OrderedDict": lambda y: OrderedDict(x=torch.ones(2), labels=y),
    "dataclass": lambda y: Batch(torch.ones(2), y),
    "namedtuple": lambda y: Row(torch.ones(2), y),
    "object": lambda y: SimpleNamespace(x=torch.ones(2), labels=y),
    "slots": lambda y: Slotted(torch.ones(2), y),
}


def item(holder: Any, name: str) -> Any:
    return holder[name] if isinstance(holder, dict) else getattr(holder, name)


@pytest.mark.parametrize("name", HOLDERS)
def test_what_is_skipped_by_name_is_left_alone_at_any_depth(name: str, cuda: str) -> None:
    labels = [torch.ones(3)]

    moved = move({"deep": [HOLDERS[name](labels)]}, cuda, skip=("labels",))["deep"][0]

    assert item(moved, "labels") is labels
    assert place(labels[0]) == "cpu"
    assert place(item(moved, "x")) == cuda


def test_what_is_skipped_by_type_is_left_alone(cuda: str) -> None:
    row = Row(torch.ones(2))

    moved = move({"row": row, "batch": Batch(torch.ones(2))}, cuda, skip=(Row,))

    assert moved["row"] is row
    assert place(moved["batch"].x) == cuda


def test_names_and_types_are_skipped_together(cuda: str) -> None:
    row, labels = Row(torch.ones(2)), torch.ones(2)

    moved = move({"row": row, "labels": labels, "x": torch.ones(2)}, cuda, skip=("labels", Row))

    assert moved["row"] is row
    assert moved["labels"] is labels
    assert place(moved["x"]) == cuda


def test_what_is_skipped_at_one_place_moves_at_another(cuda: str) -> None:
    x = torch.ones(2)

    moved = move({"labels": x, "x": x}, cuda, skip=("labels",))

    assert moved["labels"] is x
    assert place(moved["x"]) == cuda


def test_a_batch_that_is_skipped_whole_is_the_same_object(cuda: str) -> None:
    batch = {"labels": torch.ones(2)}

    assert move(batch, cuda, skip=("labels",)) is batch


# copy


def test_a_copy_shares_nothing_with_what_was_there() -> None:
    x = torch.ones(2)
    batch = {"x": x, "again": [x], "names": ["a"]}

    copied = move(batch, "cpu", copy=True)
    copied["x"].zero_()
    copied["names"].append("b")

    assert x.tolist() == [1.0, 1.0]
    assert batch["names"] == ["a"]
    assert copied["again"][0] is copied["x"]


def test_a_copy_of_a_module_leaves_the_module(cuda: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2))

    copied = move(model, cuda, copy=True)

    assert copied is not model
    assert places(*copied.parameters()) == {cuda}
    assert places(*model.parameters()) == {"cpu"}
    assert torch.equal(copied[0].weight.cpu(), model[0].weight)


def test_a_copy_of_a_training_is_a_training_of_its_own(cuda: str) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    before = model.weight.detach().clone()

    copied = move({"model": model, "optimizer": optimizer}, cuda, copy=True)
    copied["optimizer"].step()

    assert copied["optimizer"].param_groups[0]["params"][0] is copied["model"].weight
    assert torch.equal(model.weight, before)
    assert not torch.equal(copied["model"].weight.cpu(), before)


# float64


def test_float64_becomes_float32_where_there_is_none(mps: str) -> None:
    with pytest.warns(UserWarning, match=r"float64.*\['labels'\]\[1\]|\['labels'\]\[1\].*float64"):
        moved = move({"labels": [torch.ones(2), torch.tensor([0.1, 2.0], dtype=torch.float64)]}, mps)

    assert moved["labels"][1].dtype == torch.float32
    assert place(moved["labels"][1]) == mps
    assert moved["labels"][1].tolist() == pytest.approx([0.1, 2.0])


def test_many_float64_leaves_are_told_once(mps: str) -> None:
    batch = {name: torch.ones(2, dtype=torch.float64) for name in "abcdefghijkl"}

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        moved = move(batch, mps)

    assert len(told) == 1
    assert {each.dtype for each in moved.values()} == {torch.float32}


def test_the_warning_stands_at_the_line_of_the_caller(mps: str) -> None:
    with pytest.warns(UserWarning, match="float64") as told:
        move([torch.ones(2, dtype=torch.float64)], mps)

    assert told[0].filename == __file__


def test_complex128_becomes_complex64_where_there_is_none(mps: str) -> None:
    with pytest.warns(UserWarning, match="complex128"):
        moved = move([torch.ones(2, dtype=torch.complex128)], mps)

    assert moved[0].dtype == torch.complex64


def test_float64_can_be_refused(mps: str) -> None:
    model = nn.Linear(2, 2)

    with pytest.raises(WherryError, match=r"\['labels'\]\[1\]"):
        move([model, {"labels": [1, torch.ones(2, dtype=torch.float64)]}], mps, float64="error")

    assert places(*model.parameters()) == {"cpu"}


def test_a_dtype_that_is_asked_for_needs_no_warning(mps: str) -> None:
    moved = move([torch.ones(2, dtype=torch.float64)], mps, dtype=torch.float16)

    assert moved[0].dtype == torch.float16


def test_a_module_in_float64_is_converted_too(mps: str) -> None:
    model = nn.Linear(2, 2).double()

    with pytest.warns(UserWarning, match="float64.*weight|weight.*float64"):
        move(model, mps)

    assert {each.dtype for each in model.parameters()} == {torch.float32}
    assert places(*model.parameters()) == {mps}


@pytest.mark.parametrize("to", ["cuda:0", "cpu", "meta"])
def test_float64_stays_where_there_is_one(to: str, cuda: str) -> None:
    moved = move([torch.ones(2, dtype=torch.float64)], to)

    assert moved[0].dtype == torch.float64


def test_views_of_float64_share_their_storage_as_float32(mps: str) -> None:
    x = torch.arange(4, dtype=torch.float64)

    with pytest.warns(UserWarning, match="float64"):
        moved = move([x, x[2:]], mps)
    moved[1].fill_(7)

    assert moved[0].tolist() == [0.0, 1.0, 7.0, 7.0]


# Failures


class Refusing:
    """An object whose `.to` fails."""

    def to(self, *_: object, **__: object) -> None:
        raise ValueError("not today")


class Immovable(Tensor):
    """A tensor that no operator touches."""

    @staticmethod
    def __new__(cls) -> Immovable:
        return Tensor._make_wrapper_subclass(cls, (2,))

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> None:
        raise ValueError("not today")


LEAVES: dict[str, Callable[[], Any]] = {"object with .to": Refusing, "tensor": Immovable}
PATHS: dict[str, Callable[[Any], Any]] = {
    "['labels'][2]": lambda leaf: {"x": torch.ones(2), "labels": [torch.ones(2), 1, leaf]},
    "[0]": lambda leaf: (leaf,),
    ".labels": lambda leaf: Batch(torch.ones(2), leaf),
    ".labels['a']": lambda leaf: SimpleNamespace(labels={"a": leaf}),
    "[3].x": lambda leaf: [1, 2, 3, Slotted(leaf)],
    "[0].labels": lambda leaf: [Row(1, leaf)],
    "[('a', 1)]": lambda leaf: {("a", 1): leaf},
    "": lambda leaf: leaf,
}


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("path", PATHS)
def test_a_leaf_that_fails_is_named_by_its_path(leaf: str, path: str) -> None:
    with pytest.raises(UnmovableLeaf) as failed:
        move(PATHS[path](LEAVES[leaf]()), "meta")

    assert failed.value.path.endswith(path)
    assert failed.value.path in str(failed.value)
    assert str(failed.value.device) == "meta"
    assert "meta" in str(failed.value)
    assert str(failed.value.__cause__) == "not today"
    assert isinstance(failed.value, WherryError)


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_that_fails_leaves_everything_where_it_was(leaf: str, untouched: Any) -> None:
    first, last = nn.Linear(2, 2), nn.Linear(2, 2)
    weights = [id(each) for each in (*first.parameters(), *last.parameters())]
    data = {"x": torch.ones(2), "y": [torch.ones(3)]}
    is_untouched = untouched(data)

    with pytest.raises(UnmovableLeaf):
        move([first, data, LEAVES[leaf](), last], "meta")

    assert [id(each) for each in (*first.parameters(), *last.parameters())] == weights
    assert places(*first.parameters(), *last.parameters()) == {"cpu"}
    assert is_untouched()


@pytest.mark.parametrize(("name", "value"), [("float64", "maybe"), ("strays", "loudly")])
def test_an_argument_that_means_nothing_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=value):
        move([torch.ones(2)], "cpu", **{name: value})


# Destinations beyond devices


def test_numpy_makes_arrays_of_tensors(cuda: str) -> None:
    obj = Batch({"x": torch.arange(3.0), "n": 1}, [torch.ones(2, 2, dtype=torch.int64, device=cuda)])

    moved = move(obj, "numpy")

    assert type(moved) is Batch
    assert isinstance(moved.x["x"], np.ndarray)
    assert (moved.x["x"].dtype, moved.x["x"].tolist()) == (np.float32, [0.0, 1.0, 2.0])
    assert (moved.labels[0].dtype, moved.labels[0].shape) == (np.int64, (2, 2))
    assert moved.x["n"] == 1
    assert isinstance(obj.x["x"], Tensor)


def test_numpy_takes_values_out_of_the_graph() -> None:
    moved = move({"w": nn.Parameter(torch.ones(2)), "y": torch.ones(1, requires_grad=True) * 2}, "numpy")

    assert isinstance(moved["w"], np.ndarray)
    assert moved["y"].tolist() == [2.0]


def test_numpy_keeps_aliases() -> None:
    x = torch.ones(2)

    moved = move([x, {"again": x}], "numpy")

    assert moved[0] is moved[1]["again"]


def test_numpy_keeps_values_without_a_dimension() -> None:
    moved = move({"loss": torch.tensor(1.5)}, "numpy")["loss"]

    assert np.shape(moved) == ()
    assert moved.item() == 1.5


@pytest.mark.parametrize(
    "make", [lambda: torch.ones(2, 3).t(), lambda: torch.empty(0, 3), lambda: torch.ones(1).expand(4)]
)
def test_numpy_keeps_shapes_and_values(make: Callable[[], Tensor]) -> None:
    moved = move([make()], "numpy")[0]

    assert moved.shape == tuple(make().shape)
    assert moved.tolist() == make().tolist()


def test_numpy_converts_dtypes_first() -> None:
    assert move([torch.ones(2, dtype=torch.bfloat16)], "numpy", dtype=torch.float32)[0].dtype == np.float32


def test_meta_keeps_shapes_and_dtypes_of_a_model() -> None:
    model = nn.Linear(3, 2)

    moved = move({"model": model, "x": torch.ones(1, 3)}, "meta")

    assert moved["model"](moved["x"]).shape == (1, 2)
