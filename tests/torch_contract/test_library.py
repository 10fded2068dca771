"""Ops that a library registers: where they are known, and by which key their kernels run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode


@torch.library.custom_op("wherry_contract::half_of", mutates_args=(), device_types="cpu")
def half_of(x: Tensor) -> Tensor:
    return x / 2


@half_of.register_kernel("cuda")
def _half_of_cuda(x: Tensor) -> Tensor:
    return x / 2


def test_custom_op_is_known_by_name_with_the_device_types_of_its_kernels() -> None:
    assert set(OPDEFS["wherry_contract::half_of"]._backend_fns) == {"cpu", "cuda"}


def test_custom_op_has_a_kernel_for_each_device_type() -> None:
    has = torch._C._dispatch_has_kernel_for_dispatch_key

    assert has("wherry_contract::half_of", "CPU")
    assert has("wherry_contract::half_of", "CUDA")
    assert not has("wherry_contract::half_of", "XPU")


def test_mode_sees_a_custom_op_whole() -> None:
    seen: list[str] = []

    class Looks(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    with Looks():
        half_of(torch.ones(2))

    assert seen == ["aten::ones", "wherry_contract::half_of"]


def test_kernel_of_another_device_runs_on_cpu_tensors() -> None:
    out = torch.ops.wherry_contract.half_of.default._op_dk(torch._C.DispatchKey.CUDA, torch.ones(2))

    assert out.tolist() == [0.5, 0.5]
