"""What autograd and torch.func make of tensors that were moved."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from wherry import move


def test_views_of_one_storage_may_be_written_to_with_a_gradient(cuda: str) -> None:
    x, y = torch.randn(8, 4).split([3, 1], 1)
    weight = torch.ones(8, 3, device=cuda, requires_grad=True)

    moved = move({"x": x, "y": y}, cuda)
    moved["x"].mul_(weight)
    moved["x"].sum().backward()

    assert weight.grad is not None
    assert moved["x"].untyped_storage().data_ptr() == moved["y"].untyped_storage().data_ptr()


def test_what_was_moved_is_no_view_to_autograd(cuda: str) -> None:
    base = torch.ones(4)

    for moved in move([base, base[1:], base.expand(2, 4)], cuda):
        assert not moved._is_view()
        moved.detach_()


@pytest.mark.parametrize("first", [0, 1])
def test_bytes_that_are_seen_as_two_dtypes_are_copied_once(first: int, cuda: str) -> None:
    count = torch.arange(10, dtype=torch.uint8)
    pair = [count, count[:8].view(torch.float32)]

    moved = move([pair[first], pair[1 - first]], cuda)

    assert [tensor.cpu().tolist() for tensor in moved] == [pair[first].tolist(), pair[1 - first].tolist()]
    assert moved[0].untyped_storage().data_ptr() == moved[1].untyped_storage().data_ptr()
    assert moved[0].untyped_storage().nbytes() == 10


def test_a_gradient_is_taken_through_a_movement(cuda: str) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (move({"x": x}, cuda)["x"] ** 2).sum().cpu()

    assert torch.func.grad(loss)(torch.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_a_parameter_s_alias_beside_its_module_shares_its_storage(cuda: str) -> None:
    model = nn.Linear(2, 2)

    moved = move({"model": model, "alias": model.weight.detach()}, cuda)

    assert moved["alias"].data_ptr() == model.weight.data_ptr()
