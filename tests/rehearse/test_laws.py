"""Who may meet whom: the rehearsed device objects where the host code of the real CUDA build objects, and nowhere else.

What that code answered, case by case, is in truth/; here are the laws by themselves, on every backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wherry.rehearse import Rehearsal, rehearse
from wherry.rehearse.wording import torch_release


def put(target: Tensor, key: Any, value: Any) -> Tensor:
    target[key] = value
    return target


# The same laws on every backend

TOGETHER = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "eq": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "maximum": torch.maximum,
    "pow": torch.pow,
    "matmul": lambda a, b: a @ b,
    "mm": torch.mm,
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "linear": F.linear,
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "add_": lambda a, b: a.add_(b),
    "iadd": lambda a, b: a.__iadd__(b),
    "out": lambda a, b: torch.add(a, a, out=b),
    "gather": lambda a, b: a.gather(0, b.long()),
    "scatter": lambda a, b: a.scatter(0, torch.zeros_like(a, dtype=torch.long), b),
    "index_select": lambda a, b: a.index_select(0, b[0].long()),
    "embedding": lambda a, b: F.embedding(b.long(), a),
    "cross_entropy": lambda a, b: F.cross_entropy(a, b[0].long()),
    "mse_loss": F.mse_loss,
    "nll_loss": lambda a, b: F.nll_loss(a, b[0].long()),
    "binary_cross_entropy": lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()),
    "layer_norm": lambda a, b: F.layer_norm(a, (2,), b[0]),
    "batch_norm": lambda a, b: F.batch_norm(a, b[0], b[1].abs() + 1),
    "prelu": lambda a, b: F.prelu(a, b[0]),
    "conv1d": lambda a, b: F.conv1d(a[None], b[..., None]),
    "attention": lambda a, b: F.scaled_dot_product_attention(a[None], b[None], b[None]),
    "addmm": lambda a, b: torch.addmm(b[0], a, a),
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "cdist": torch.cdist,
    "dot": lambda a, b: torch.dot(a[0], b[0]),
    "outer": lambda a, b: torch.outer(a[0], b[0]),
    "kron": torch.kron,
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "solve": lambda a, b: torch.linalg.solve(torch.eye(2, device=a.device) + a, b),
    "masked_fill": lambda a, b: a.masked_fill(b.bool(), 0.0),
    "masked_select": lambda a, b: a.masked_select(b.bool()),
    "index_put values": lambda a, b: a.index_put((torch.zeros(2, dtype=torch.long, device=a.device),), b),
    "index_add": lambda a, b: a.index_add(0, torch.zeros(2, dtype=torch.long, device=a.device), b),
    "searchsorted": torch.searchsorted,
    "isin": torch.isin,
    "equal": torch.equal,
    "allclose": torch.allclose,
    "cosine_similarity": F.cosine_similarity,
    "grid_sample": lambda a, b: F.grid_sample(a[None, None], b[None, None], align_corners=False),
    "set data": lambda a, b: a.set_(b),
    "foreach": lambda a, b: torch._foreach_add([a], [b]),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_stray_on_either_side_is_refused(name: str, device: str) -> None:
    def pair(first: str, second: str) -> tuple[Tensor, Tensor]:
        return torch.zeros(2, 2, device=first), torch.zeros(2, 2, device=second)

    with pytest.raises((RuntimeError, NotImplementedError)):
        TOGETHER[name](*pair(device, "cpu"))
    with pytest.raises((RuntimeError, NotImplementedError)):
        TOGETHER[name](*pair("cpu", device))
    TOGETHER[name](*pair(device, device))
    TOGETHER[name](*pair("cpu", "cpu"))


def test_operator_without_a_kernel_is_refused_for_that_before_its_operands_are_compared() -> None:
    with rehearse("mps"), pytest.raises(NotImplementedError, match=r"'aten::take' is not currently implemented"):
        torch.zeros(2, device="mps").take(torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize("name", TOGETHER)
def test_stray_on_another_device_is_refused(name: str, pair: tuple[str, str]) -> None:
    first, second = pair

    with pytest.raises(RuntimeError):
        TOGETHER[name](torch.zeros(2, 2, device=first), torch.zeros(2, 2, device=second))
    TOGETHER[name](torch.zeros(2, 2, device=second), torch.zeros(2, 2, device=second))


MAY_MEET = {
    "0-dim on the right": lambda d: torch.zeros(2, device=d) + torch.tensor(1.0),
    "0-dim on the left": lambda d: torch.tensor(1.0) * torch.zeros(2, device=d),
    "0-dim in place": lambda d: torch.zeros(2, device=d).add_(torch.tensor(1.0)),
    "0-dim compared": lambda d: torch.zeros(2, device=d) > torch.tensor(1.0),
    "0-dim in where": lambda d: torch.where(torch.ones(2, device=d) > 0, torch.tensor(1.0), torch.zeros(2, device=d)),
    "Python number": lambda d: torch.zeros(2, device=d) + 1,
    "host indices": lambda d: torch.zeros(2, device=d)[torch.tensor([0])],
    "host mask": lambda d: torch.zeros(2, device=d)[torch.tensor([True, False])],
    "list of indices": lambda d: torch.zeros(2, device=d)[[0, 1]],
    "copy_ from the host": lambda d: torch.zeros(2, device=d).copy_(torch.ones(2)),
    "slice from the host": lambda d: put(torch.zeros(2, device=d), slice(0, 2), torch.ones(2)),
    "sizes of a host tensor": lambda d: torch.zeros(2, device=d).expand_as(torch.ones(3, 2)),
    "expand_as": lambda d: torch.zeros(1, device=d).view_as(torch.ones(1, 1)),
    "learning rate": lambda d: torch.zeros(2, device=d).mul_(torch.tensor(0.5)),
    "numpy scalar": lambda d: torch.zeros(2, device=d) * np.float32(2),
    "mixed list of 0-dim": lambda d: torch.zeros(2, device=d) + sum(torch.tensor(float(i)) for i in range(3)),
}


@pytest.mark.parametrize("name", MAY_MEET)
def test_exception_to_the_law_runs_on_the_device(name: str, device: str) -> None:
    assert str(MAY_MEET[name](device).device) == device


def test_host_tensor_may_not_take_a_device_scalar(device: str) -> None:
    with pytest.raises(RuntimeError, match="two devices"):
        torch.zeros(2) + torch.tensor(1.0, device=device)


def test_two_host_scalars_are_too_many(device: str) -> None:
    with pytest.raises(RuntimeError, match="too many CPU scalars"):
        torch.add(torch.tensor(1.0), torch.tensor(1.0), out=torch.tensor(1.0, device=device))


# The words of the plain cases

SENTENCES = [
    (
        lambda: torch.zeros(2, device="cuda") + torch.zeros(2),
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ),
    (
        lambda: torch.zeros(2) + torch.zeros(2, device="cuda:1"),
        "Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cpu!",
    ),
    (
        lambda: torch.zeros(2, 2, device="cuda") @ torch.zeros(2, 2),
        "Expected all tensors to be on the same device, but got mat2 is on cpu, different from other tensors on cuda:0 "
        "(when checking argument in method wrapper_CUDA_mm)",
    ),
    (
        lambda: nn.Linear(2, 2).cuda()(torch.zeros(1, 2)),
        "Expected all tensors to be on the same device, but got mat1 is on cpu, different from other tensors on cuda:0 "
        "(when checking argument in method wrapper_CUDA_addmm)",
    ),
    (
        lambda: nn.Conv2d(1, 1, 1)(torch.zeros(1, 1, 2, 2, device="cuda")),
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
    (
        lambda: torch.zeros(2)[torch.zeros(1, dtype=torch.long, device="cuda")],
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
]


@pytest.mark.skipif(torch_release() < (2, 8), reason="the generated check had other words before torch 2.8")
@pytest.mark.parametrize(("mix", "text"), SENTENCES)
def test_words_are_the_cuda_builds(mix: Any, text: str, cuda: Rehearsal) -> None:
    with pytest.raises(RuntimeError) as caught:
        mix()

    assert str(caught.value) == text
