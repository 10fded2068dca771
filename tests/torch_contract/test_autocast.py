"""The dispatcher tells which ops autocast casts, gives their kernels away, and takes them back."""

from __future__ import annotations

import warnings

import pytest
import torch

from wherry.dispatch import autocast_kernel, autocast_list, overload_named


@pytest.mark.parametrize("device_type", ["cpu", "cuda", "mps", "xpu"])
def test_every_build_knows_the_list_of_every_device(device_type: str) -> None:
    assert {"mm", "linear", "matmul"} <= autocast_list(device_type)
    assert ("softmax.int" in autocast_list(device_type)) is (device_type != "cpu")


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="this torch does not give its kernels away")
def test_kernel_that_was_replaced_can_be_called_and_comes_back() -> None:
    original = autocast_kernel(overload_named("mm"))
    assert original is not None
    called = []

    def replacement(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        called.append("mm")
        return original(a, b)

    library = torch.library.Library("aten", "IMPL", "AutocastCPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("mm", replacement)
    x = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch.mm(x, x)
    library._destroy()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        after = torch.mm(x, x)

    assert called == ["mm"]
    assert inside.dtype is after.dtype is torch.bfloat16
    first, second = (node for node, _ in inside.grad_fn.next_functions)
    assert first is second  # the cast of a parameter is made once


def test_op_without_an_opinion_has_no_kernel() -> None:
    assert autocast_kernel(overload_named("exp")) is None
