"""What a post-mortem reads of a tensor below everything that may stand in front of it."""

from __future__ import annotations

import torch

from wherry.dispatch import below, storage_below


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("somebody asked")


def test_attributes_are_read_without_asking_a_subclass() -> None:
    tensor = torch.ones(2, 3, dtype=torch.float16).as_subclass(Loud)

    assert str(below(tensor, "device")) == "cpu"
    assert tuple(below(tensor, "shape")) == (2, 3)
    assert below(tensor, "dtype") is torch.float16
    assert below(tensor, "is_leaf")
    assert below(tensor, "grad_fn") is None


def test_views_have_the_storage_and_the_number_of_what_they_look_at() -> None:
    tensor = torch.ones(4)

    storage, number = storage_below(tensor)

    assert storage is tensor.untyped_storage()
    assert storage_below(tensor[1:].view(3, 1))[1] == number
    assert storage_below(torch.ones(4))[1] != number
