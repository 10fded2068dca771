"""A storage is one Python object for as long as it lives, and everything over its bytes shares it (since torch 2.1)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor


@pytest.fixture
def marked() -> Tensor:
    """A tensor whose storage carries an attribute of ours."""
    x = torch.zeros(4, 4)
    x.untyped_storage().mark = "here"  # type: ignore[attr-defined]
    return x


def mark_of(x: Tensor) -> object:
    return getattr(x.untyped_storage(), "mark", None)


def test_attribute_survives_while_nobody_holds_the_python_object(marked: Tensor) -> None:
    gc.collect()

    assert mark_of(marked) == "here"
    assert marked.untyped_storage() is marked.untyped_storage()


SHARING: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda x: x.view(16),
    "slice": lambda x: x[1:, ::2],
    "transpose": lambda x: x.t(),
    "expand": lambda x: x[:1].expand(3, 4),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "parameter": torch.nn.Parameter,
    "as_strided": lambda x: x.as_strided((2,), (1,)),
    "view of a dtype": lambda x: x.view(torch.int32),
    "unbind": lambda x: x.unbind()[0],
    "alias": torch.ops.aten.alias,
    "set_": lambda x: torch.empty(0).set_(x),
    "set_ of the storage": lambda x: torch.empty(0).set_(x.untyped_storage()),
    "as_subclass": lambda x: x.as_subclass(torch.nn.Buffer) if hasattr(torch.nn, "Buffer") else x.view_as(x),
    "requires_grad_": lambda x: x.detach().requires_grad_(),
    "reshape without a copy": lambda x: x.reshape(16),
}


@pytest.mark.parametrize("name", SHARING)
def test_alias_shares_the_storage(name: str, marked: Tensor) -> None:
    assert mark_of(SHARING[name](marked)) == "here"


COPYING: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda x: x.clone(),
    "add": lambda x: x + 0,
    "to another dtype": lambda x: x.to(torch.float64),
    "contiguous of a transposed": lambda x: x.t().contiguous(),
}


@pytest.mark.parametrize("name", COPYING)
def test_copy_has_a_storage_without_the_attribute(name: str, marked: Tensor) -> None:
    assert mark_of(COPYING[name](marked)) is None


def test_saved_tensor_shares_the_storage(marked: Tensor) -> None:
    marked.requires_grad_()
    y = marked.exp()
    y.untyped_storage().mark = "result"  # type: ignore[attr-defined]

    assert y.grad_fn is not None
    assert mark_of(y.grad_fn._saved_result) == "result"  # type: ignore[attr-defined]


def test_assigned_data_brings_its_storage(marked: Tensor) -> None:
    p = torch.nn.Parameter(torch.zeros(1))

    p.data = marked

    assert mark_of(p) == "here"


def test_swapped_tensors_swap_their_storages(marked: Tensor) -> None:
    other = torch.zeros(2)

    torch.utils.swap_tensors(marked, other)

    assert mark_of(other) == "here"
    assert mark_of(marked) is None


def test_attribute_dies_with_the_storage_not_with_the_first_tensor() -> None:
    class Mark:
        pass

    mark = Mark()
    first = torch.zeros(4)
    first.untyped_storage().mark = mark  # type: ignore[attr-defined]
    dead = weakref.ref(mark)
    view = first[1:]

    del first, mark
    gc.collect()
    alive = dead() is not None
    del view
    gc.collect()

    assert alive
    assert dead() is None


def test_class_answers_for_a_storage_without_the_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.UntypedStorage, "mark", "unmarked", raising=False)

    assert mark_of(torch.zeros(1)) == "unmarked"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.ones(1)]).to_padded_tensor(0.0).to_sparse(),
    ],
    ids=["sparse", "sparse from nested"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensor_without_a_storage_says_so(make: Callable[[], Tensor]) -> None:
    with pytest.raises(NotImplementedError):
        make().untyped_storage()


def test_storage_copy_is_a_new_object(marked: Tensor) -> None:
    assert getattr(marked.untyped_storage().clone(), "mark", None) is None
