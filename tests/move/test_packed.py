"""Many small tensors go to an accelerator as one copy, and nobody can tell afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from wherry import move, rehearse
from wherry.move import packed


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of the pinned buffers that a move makes, on a virtual CUDA device."""
    made: list[int] = []
    empty = torch.empty

    def watched(*args: Any, **kwargs: Any) -> Tensor:
        if kwargs.get("pin_memory"):
            made.append(args[0])
        return empty(*args, **kwargs)

    with rehearse("cuda"):
        monkeypatch.setattr(torch, "empty", watched)
        yield made
        monkeypatch.undo()


def small(count: int) -> list[Tensor]:
    return [torch.arange(index + 1).to((torch.float32, torch.int64, torch.bool)[index % 3]) for index in range(count)]


def test_each_dtype_is_one_pinned_buffer(pinned: list[int]) -> None:
    moved = move(small(30), "cuda")

    assert len(pinned) == 3
    assert sum(pinned) == sum(tensor.numel() for tensor in moved)


def test_values_arrive_in_storages_of_their_own(pinned: list[int]) -> None:
    here = [torch.arange(6.0).view(2, 3), torch.tensor(5), *small(30)]

    moved = move(here, "cuda")

    assert pinned
    assert [tensor.tolist() for tensor in moved] == [tensor.tolist() for tensor in here]
    assert [tensor.dtype for tensor in moved] == [tensor.dtype for tensor in here]
    assert {str(tensor.device) for tensor in moved} == {"cuda:0"}
    assert [tensor.untyped_storage().nbytes() for tensor in moved] == [tensor.nbytes for tensor in here]


@pytest.mark.parametrize(
    "batch",
    [
        small(packed.FEWEST - 1),
        [torch.zeros(packed.LARGEST // 4 + 1), *small(30)],
        [torch.ones(4)[index : index + 1] for index in range(4)] * 8,
    ],
    ids=["few", "a large one", "views"],
)
def test_others_go_one_by_one(batch: list[Tensor], pinned: list[int]) -> None:
    moved = move(batch, "cuda")

    assert pinned == []
    assert [tensor.tolist() for tensor in moved] == [tensor.tolist() for tensor in batch]


def test_what_is_pinned_already_is_not_packed(pinned: list[int]) -> None:
    batch = [tensor.pin_memory() for tensor in small(30)]

    moved = move(batch, "cuda")

    assert pinned == []
    assert [tensor.tolist() for tensor in moved] == [tensor.tolist() for tensor in batch]
