"""Inside of what transforms a program: torch.compile, vmap, grad, fake tensors, inference mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from wherry import dispatch, move


@pytest.mark.slow  # torch.compile imports for a second
@pytest.mark.skipif(dispatch.why_no_dynamo() is not None, reason="this torch cannot trace programs in this Python")
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_a_compiled_function_may_move(dtype: torch.dtype | None) -> None:
    def step(batch: Any) -> Tensor:
        batch = move(batch, "cpu", dtype=dtype)
        return batch["x"] + batch["y"][0]

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    batch = {"x": torch.ones(2), "y": [torch.arange(2)], "name": "a"}

    assert compiled(batch).tolist() == [1.0, 2.0]
    assert compiled(batch).dtype is (dtype or torch.float32)


def test_the_gradient_of_what_was_moved_arrives(cuda: str) -> None:
    found = torch.func.grad(lambda x: (move({"x": x}, "cpu")["x"] ** 2).sum())(torch.tensor([1.0, 2.0]))

    assert found.tolist() == [2.0, 4.0]


def test_each_of_a_vmapped_batch_is_moved() -> None:
    found = torch.func.vmap(lambda x: move([x, x[:1]], "cpu")[1] * 2)(torch.arange(6.0).view(3, 2))

    assert found.tolist() == [[0.0], [4.0], [8.0]]


def test_fake_tensors_are_moved_as_fakes() -> None:
    with dispatch.FakeTensorMode():
        moved = move({"x": torch.ones(4), "y": torch.ones(4)[1:]}, "meta")

    assert [type(tensor) for tensor in moved.values()] == [dispatch.FakeTensor] * 2
    assert {tensor.device.type for tensor in moved.values()} == {"meta"}


def test_inference_tensors_stay_inference_tensors(cuda: str) -> None:
    with torch.inference_mode():
        x = torch.ones(4)
        moved = move([x, x[1:]], cuda)

    assert [tensor.is_inference() for tensor in moved] == [True, True]
    assert moved[0].untyped_storage().data_ptr() == moved[1].untyped_storage().data_ptr()


def test_a_default_device_changes_nothing() -> None:
    with torch.device("meta"):
        here = [torch.ones(4, device="cpu"), torch.ones(4, device="cpu")[1:].expand(2, 3)]
        moved = move(here, "cpu", copy=True)

    assert {str(tensor.device) for tensor in moved} == {"cpu"}
    assert [tensor.tolist() for tensor in moved] == [tensor.tolist() for tensor in here]
