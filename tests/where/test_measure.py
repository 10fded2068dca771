"""One tensor as facts: devices, sizes, and the bytes that stand behind it, of every kind of tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import wherry
from wherry.dispatch import FakeTensorMode
from wherry.where.measure import Facts, measure

pytestmark = pytest.mark.filterwarnings("ignore")  # of prototypes


def told(facts: Facts) -> tuple[Any, ...]:
    return facts.device, facts.dtype, facts.shape, facts.nbytes, facts.would_be, facts.note


class Plain(torch.Tensor):
    """A subclass whose code must not run."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(func)


class Wrapper(torch.Tensor):
    """A tensor made of others, as DTensor and quantized weights are, that answers every question with code."""

    __slots__ = ("_scale",)

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            cls, data.shape, dtype=torch.float32, dispatch_sizes_strides_policy="sizes", dispatch_device=True
        )
        made._data = [data]
        made._scale = scale
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(func)


def fake(device: str) -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(3, device=device)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "plain": (lambda: torch.ones(2, 3), ("cpu", "float32", (2, 3), 24, 0, "")),
    "0-dim": (lambda: torch.tensor(1), ("cpu", "int64", (), 8, 0, "")),
    "empty": (lambda: torch.empty(0, 3), ("cpu", "float32", (0, 3), 0, 0, "")),
    "a view": (lambda: torch.ones(10)[2:4], ("cpu", "float32", (2,), 40, 0, "")),
    "expanded": (lambda: torch.ones(1).expand(1000), ("cpu", "float32", (1000,), 4, 0, "")),
    "meta": (lambda: torch.empty(3, device="meta"), ("meta", "float32", (3,), 0, 12, "")),
    "fake": (lambda: fake("cuda:1"), ("cuda:1", "float32", (3,), 0, 12, "fake")),
    "coo": (lambda: torch.eye(2).to_sparse(), ("cpu", "float32", (2, 2), 2 * 2 * 8 + 2 * 4, 0, "sparse_coo")),
    "csr": (
        lambda: torch.sparse_csr_tensor([0, 1, 1], [0], [1.0], size=(2, 2)),
        ("cpu", "float32", (2, 2), 3 * 8 + 8 + 4, 0, "sparse_csr"),
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        ("cpu", "float32", None, 20, 0, "nested"),
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8),
        ("cpu", "qint8", (3,), 3, 0, "quantized"),
    ),
    "not initialized": (lambda: nn.LazyLinear(2).weight, ("cpu", "float32", None, 0, 0, "uninitialized")),
    "a subclass": (lambda: torch.ones(2).as_subclass(Plain), ("cpu", "float32", (2,), 8, 0, "")),
    "made of others": (lambda: Wrapper(torch.ones(2), torch.ones(1)), ("cpu", "float32", None, 12, 0, "Wrapper")),
    "an array": (lambda: np.ones((4, 4))[1:], ("numpy", "float64", (3, 4), 128, 0, "")),
}


@pytest.mark.parametrize(("make", "expected"), CASES.values(), ids=CASES)
def test_what_is_known_of_it(make: Any, expected: tuple[Any, ...]) -> None:
    assert told(measure(make())) == expected


def test_code_of_the_subclasses_would_run_when_asked() -> None:
    """The twin."""
    with pytest.raises(AssertionError):
        _ = torch.ones(2).as_subclass(Plain).shape
    with pytest.raises(AssertionError):
        _ = Wrapper(torch.ones(2), torch.ones(1)).shape


def test_jagged_counts_its_values_and_its_offsets() -> None:
    facts = measure(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged))

    assert (facts.device, facts.note, facts.nbytes) == ("cpu", "NestedTensor", 5 * 4 + 3 * 8)


def test_views_have_the_key_of_their_storage_and_others_do_not() -> None:
    whole = torch.ones(4)

    assert measure(whole).storages == measure(whole[1:]).storages
    assert measure(whole).storages != measure(torch.ones(4)).storages


def test_memory_of_an_array_is_that_of_its_tensor() -> None:
    whole = torch.ones(4)

    assert measure(whole.numpy()[1:]).storages == measure(whole).storages


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, device="cuda:1"),
        lambda: torch.eye(3, device="cuda:1").to_sparse(),
        lambda: nn.Parameter(torch.ones(3, device="cuda:1")),
    ],
    ids=["plain", "sparse", "parameter"],
)
def test_in_a_rehearsal_it_is_where_the_program_sees_it(make: Any) -> None:
    with wherry.rehearse("cuda", count=2):
        tensor = make()

        assert measure(tensor).device == str(tensor.device) == "cuda:1"

    assert measure(tensor).device == str(tensor.device)


def test_mlx_arrays() -> None:
    mx = pytest.importorskip("mlx.core", reason="mlx is an extra")

    assert told(measure(mx.ones((2, 3)))) == ("mlx", "float32", (2, 3), 24, 0, "")
