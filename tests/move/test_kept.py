"""What nobody else keeps: aliases, shared storages, gradients, subclasses, small storages, the very object that need not move."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import wherry
from wherry import move


@pytest.fixture(params=["meta", "cuda:0"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with wherry.rehearse("cuda"):
        yield request.param


def place(tensor: Tensor) -> str:
    return str(tensor.device)


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


# Aliases


def test_the_same_tensor_twice_is_one_tensor_on_the_device(device: str) -> None:
    x = torch.ones(2)

    moved = move({"a": x, "b": [x, SimpleNamespace(x=x)]}, device)

    assert moved["a"] is moved["b"][0] is moved["b"][1].x
    assert place(moved["a"]) == device


SHARED: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"x": torch.ones(2)},
    "list": lambda: [torch.ones(2)],
    "tuple": lambda: (torch.ones(2),),
    "set": lambda: {torch.ones(2)},
    "deque": lambda: deque([torch.ones(2)]),
    "object": lambda: SimpleNamespace(x=torch.ones(2)),
}


@pytest.mark.parametrize("name", SHARED)
def test_the_same_container_twice_is_one_container_on_the_device(name: str, device: str) -> None:
    shared = SHARED[name]()

    moved = move([shared, {"again": shared}], device)

    assert moved[0] is moved[1]["again"]
    assert moved[0] is not shared


def test_equal_tensors_stay_two(device: str) -> None:
    moved = move([torch.ones(2), torch.ones(2)], device)

    assert moved[0] is not moved[1]
    assert storage(moved[0]) != storage(moved[1])


# Storages


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "row": lambda x: x[1],
    "column": lambda x: x[:, 1],
    "transposed": lambda x: x.t(),
    "flat": lambda x: x.view(-1),
    "every other": lambda x: x[::2, ::2],
    "of another dtype": lambda x: x.view(torch.int32),
    "expanded": lambda x: x[:1].expand(4, 4),
    "windows that overlap": lambda x: x.view(-1).unfold(0, 4, 1),
    "detached": lambda x: x.detach(),
    "0-dim": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
    "whole storage by another tensor": lambda x: torch.empty(0).set_(x.untyped_storage()),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shares_the_storage_of_its_base(name: str, device: str, portrait: Any) -> None:
    x = torch.arange(16.0).view(4, 4)
    view = VIEWS[name](x)

    moved = move([x, view], device)

    assert storage(moved[0]) == storage(moved[1])
    assert portrait(moved, values=False) == portrait([x, view], values=False)
    assert moved[1].stride() == view.stride()
    assert storage(moved[0]) != storage(x)


def test_what_is_written_through_one_view_is_read_through_another(cuda: str) -> None:
    x = torch.zeros(4, 4)

    moved = move({"all": x, "row": x[1], "column": x[:, 2]}, cuda)
    moved["row"].fill_(7)

    assert moved["all"][1].tolist() == [7.0] * 4
    assert moved["column"].tolist() == [0.0, 7.0, 0.0, 0.0]
    assert x.sum() == 0


def test_views_share_a_storage_without_their_base(cuda: str) -> None:
    """As LSTM's flat weights do, and batches that were cut from one buffer."""
    first, second = torch.arange(8.0).chunk(2)

    moved = move((first, second), cuda)

    assert storage(moved[0]) == storage(moved[1])
    assert moved[1].tolist() == [4.0, 5.0, 6.0, 7.0]


@pytest.mark.alone
def test_a_storage_is_copied_once(cuda: str) -> None:
    x = torch.zeros(1024)
    gc.collect()
    before = torch.cuda.memory_allocated()

    moved = move([x, *x.view(32, 32), x.view(32, 32).t()], cuda)

    assert torch.cuda.memory_allocated() - before == 4096
    assert len(moved) == 34


def test_an_expanded_tensor_stays_expanded(cuda: str) -> None:
    x = torch.tensor([1.5]).expand(1000, 1000)

    moved = move(x, cuda)

    assert moved.stride() == (0, 0)
    assert moved.untyped_storage().nbytes() == 4
    assert moved.shape == (1000, 1000)
    assert moved[999, 999] == 1.5


def test_a_tensor_expanded_in_one_dimension_stays_so(cuda: str) -> None:
    moved = move(torch.arange(3.0).expand(1000, 3), cuda)

    assert moved.untyped_storage().nbytes() == 12
    assert moved[999].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_memory_format_is_kept(memory_format: torch.memory_format, device: str) -> None:
    x = torch.ones(2, 3, 4, 5).to(memory_format=memory_format)

    moved = move([x], device)[0]

    assert moved.is_contiguous(memory_format=memory_format)
    assert moved.stride() == x.stride()


def test_a_transposed_tensor_stays_transposed(device: str) -> None:
    assert move(torch.ones(3, 4).t(), device).stride() == (1, 4)


@pytest.mark.skipif(not hasattr(Tensor, "rename"), reason="this torch has no named tensors any more")
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_names_are_kept(cuda: str) -> None:
    named = torch.ones(2, 3).rename("N", "C")  # type: ignore[attr-defined]

    assert move([named], cuda)[0].names == ("N", "C")


# Autograd


def test_a_parameter_is_a_parameter_and_a_leaf(device: str) -> None:
    moved = move({"w": nn.Parameter(torch.ones(2))}, device)["w"]

    assert type(moved) is nn.Parameter
    assert moved.is_leaf
    assert moved.requires_grad


def test_a_frozen_parameter_stays_frozen(device: str) -> None:
    moved = move(nn.Parameter(torch.ones(2), requires_grad=False), device)

    assert type(moved) is nn.Parameter
    assert not moved.requires_grad


def test_a_leaf_that_requires_grad_is_a_leaf_that_does(device: str) -> None:
    moved = move([torch.ones(2, requires_grad=True)], device)[0]

    assert moved.is_leaf
    assert moved.requires_grad
    assert moved.grad is None


def test_a_leaf_gathers_gradients_on_the_device(cuda: str) -> None:
    x = torch.ones(2, requires_grad=True)

    moved = move([x], cuda)[0]
    (moved * 3).sum().backward()

    assert moved.grad.tolist() == [3.0, 3.0]
    assert place(moved.grad) == cuda
    assert x.grad is None


def test_leaves_require_grad_where_gradients_are_off(cuda: str) -> None:
    with torch.no_grad():
        moved = move([nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)], cuda)

    assert [each.requires_grad for each in moved] == [True, True]
    assert [each.is_leaf for each in moved] == [True, True]


def test_a_gradient_comes_with_its_tensor(device: str) -> None:
    x = torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()

    moved = move({"x": x, "gradient": x.grad}, device)

    assert place(moved["x"].grad) == device
    assert moved["x"].grad is moved["gradient"]
    assert place(x.grad) == "cpu"


def test_a_result_stays_in_the_graph(cuda: str) -> None:
    x = torch.ones(2, requires_grad=True)

    moved = move({"loss": (x * 2).sum(), "n": 2}, cuda)["loss"]
    moved.backward()

    assert place(moved) == cuda
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_view_of_a_result_stays_in_the_graph(cuda: str) -> None:
    x = torch.ones(4, requires_grad=True)
    y = x * 2

    moved = move([y, y[:2]], cuda)
    moved[1].sum().backward()

    assert x.grad.tolist() == [2.0, 2.0, 0.0, 0.0]


# Subclasses and attributes


class Tagged(Tensor):
    pass


class TaggedParameter(nn.Parameter):
    pass


SUBCLASSES: dict[str, Callable[[], Any]] = {
    "of Tensor": lambda: torch.ones(2).as_subclass(Tagged),
    "of Parameter": lambda: TaggedParameter(torch.ones(2)),
    "Tensor itself": lambda: torch.ones(2),
    "Parameter": lambda: nn.Parameter(torch.ones(2)),
    "Buffer": lambda: nn.Buffer(torch.ones(2)),
}


@pytest.mark.parametrize("name", SUBCLASSES)
def test_a_subclass_keeps_its_type_and_its_attributes(name: str, device: str) -> None:
    x = SUBCLASSES[name]()
    x.tag = ["left"]
    x.scale = torch.ones(3)

    moved = move({"x": x}, device)["x"]

    assert type(moved) is type(x)
    assert moved.tag == ["left"]
    assert place(moved.scale) == device
    assert place(x.scale) == "cpu"


def test_a_parameter_s_mark_of_the_optimizer_is_kept(device: str) -> None:
    weight = nn.Parameter(torch.ones(2))
    weight._no_weight_decay = True  # as large models mark their parameters

    assert move([weight], device)[0]._no_weight_decay is True


# What need not move


def test_what_is_there_is_returned_as_it_is(cuda: str) -> None:
    batch = {"x": torch.ones(2, device=cuda), "more": [torch.ones(3, device=cuda), {"n": 1}]}

    assert move(batch, cuda) is batch


def test_a_part_that_is_there_is_the_same_object_beside_one_that_moved(cuda: str) -> None:
    there = {"x": torch.ones(2, device=cuda)}
    without = {"names": ["a", "b"]}
    here = {"x": torch.ones(2)}

    moved = move([there, without, here], cuda)

    assert moved[0] is there
    assert moved[1] is without
    assert moved[2] is not here
    assert place(moved[2]["x"]) == cuda


def test_a_tensor_beside_one_that_moved_is_the_same_object(cuda: str) -> None:
    there = torch.ones(2, device=cuda)

    moved = move({"there": there, "here": torch.ones(2)}, cuda)

    assert moved["there"] is there


def test_a_container_of_no_tensors_is_returned_as_it_is(device: str) -> None:
    settings = {"lr": 0.1, "names": ["a"], "shape": (1, 2), "array": np.arange(3)}

    assert move(settings, device) is settings


def test_arrays_beside_tensors_are_the_same_objects(device: str) -> None:
    array = np.arange(3)

    moved = move({"x": torch.ones(2), "array": array}, device)

    assert moved["array"] is array


def test_the_two_devices_of_a_machine_are_two(cuda: str) -> None:
    x = torch.ones(2, device="cuda:1")

    moved = move([x], cuda)

    assert moved[0] is not x
    assert place(moved[0]) == "cuda:0"


def test_what_comes_back_is_complete(cuda: str) -> None:
    """A copy from the device to the host that is read too early shows what was in memory before."""
    moved = move({"x": torch.arange(1000.0)}, cuda)

    back = move(moved, "cpu", non_blocking=True)

    assert place(back["x"]) == "cpu"
    assert back["x"].sum() == 499500
