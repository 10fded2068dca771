"""What a post-mortem reads of a tensor below everything that may stand in front of it."""

from __future__ import annotations

import torch

from wherry import dispatch
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


def test_a_class_that_computes_in_python_is_a_wrapper() -> None:
    class Plain(torch.Tensor):
        pass

    with dispatch.FakeTensorMode():
        fake = torch.ones(2)

    assert dispatch.is_wrapper(fake)
    assert not dispatch.is_wrapper(torch.ones(2))
    assert not dispatch.is_wrapper(torch.nn.Parameter(torch.ones(2)))
    assert not dispatch.is_wrapper(torch.ones(2).as_subclass(Plain))


def test_lazy_bits_come_off_and_on_again() -> None:
    for lazy in (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag, torch.tensor([3.0])):
        bare = dispatch.without_lazy_bits(lazy)

        assert not bare.is_conj()
        assert not bare.is_neg()
        assert storage_below(bare)[1] == storage_below(lazy)[1]
        assert dispatch.with_lazy_bits_of(bare, lazy).equal(lazy)


def test_a_parameter_takes_data_of_another_accelerator_and_not_of_meta() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))

    assert dispatch.takes_data(parameter, torch.ones(2, dtype=torch.float64))
    assert not dispatch.takes_data(parameter, torch.ones(2, device="meta"))


def test_many_tensors_are_copied_by_one_op() -> None:
    into = [torch.zeros(2), torch.zeros(3)]

    dispatch.copy_each(into, [torch.ones(2), torch.ones(3)])

    assert [tensor.sum().item() for tensor in into] == [2.0, 3.0]
