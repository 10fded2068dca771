"""A kernel of CUDA that is not deterministic says so when it is asked to be, where the CPU's has nothing to say.

The names were read off the host code of torch 2.13.0+cu130.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from wherry.rehearse import Rehearsal

Call = Callable[[str], Any]


def zeros(device: str, *sizes: int) -> Tensor:
    return torch.zeros(*sizes, device=device)


def long(device: str, *sizes: int) -> Tensor:
    return torch.zeros(*sizes, dtype=torch.long, device=device)


def backward_of(function: Callable[[Tensor], Tensor], *sizes: int) -> Call:
    return lambda device: function(zeros(device, *sizes).requires_grad_()).sum().backward()


def resized(mode: str, *sizes: int, **options: Any) -> Call:
    return backward_of(lambda x: F.interpolate(x, scale_factor=2, mode=mode, **options), *sizes)


def padded(mode: str, dims: int) -> Call:
    return backward_of(lambda x: F.pad(x, (1, 1) * dims, mode=mode), 1, 1, *[4] * dims)


def ctc(device: str) -> None:
    scores = zeros(device, 5, 2, 4).log_softmax(-1).requires_grad_()
    F.ctc_loss(scores, long(device, 2, 3) + 1, torch.full((2,), 5), torch.full((2,), 3)).backward()


def bag(mode: str) -> Call:
    return backward_of(lambda w: F.embedding_bag(long(str(w.device), 3), w, long(str(w.device), 1), mode=mode), 4, 2)


REFUSED: dict[str, tuple[Call, str]] = {
    "avg_pool3d": (backward_of(lambda x: F.avg_pool3d(x, 2), 1, 1, 4, 4, 4), "avg_pool3d_backward_cuda"),
    "adaptive_avg_pool2d": (
        backward_of(lambda x: F.adaptive_avg_pool2d(x, 2), 1, 1, 4, 4), "adaptive_avg_pool2d_backward_cuda",
    ),
    "adaptive_avg_pool3d": (
        backward_of(lambda x: F.adaptive_avg_pool3d(x, 2), 1, 1, 4, 4, 4), "adaptive_avg_pool3d_backward_cuda",
    ),
    "adaptive_max_pool2d": (
        backward_of(lambda x: F.adaptive_max_pool2d(x, 2), 1, 1, 4, 4), "adaptive_max_pool2d_backward_cuda",
    ),
    "max_pool3d": (backward_of(lambda x: F.max_pool3d(x, 2), 1, 1, 4, 4, 4), "max_pool3d_with_indices_backward_cuda"),
    "fractional_max_pool2d": (
        backward_of(lambda x: F.fractional_max_pool2d(x, 2, output_size=2), 1, 1, 4, 4),
        "fractional_max_pool2d_backward_cuda",
    ),
    "linear": (resized("linear", 1, 1, 4), "upsample_linear1d_backward_out_cuda"),
    "bicubic": (resized("bicubic", 1, 1, 4, 4), "upsample_bicubic2d_backward_out_cuda"),
    "antialiased": (resized("bilinear", 1, 1, 4, 4, antialias=True), "upsample_bilinear2d_aa_backward_out_cuda"),
    "reflected 1d": (padded("reflect", 1), "reflection_pad1d_backward_out_cuda"),
    "reflected 3d": (padded("reflect", 3), "reflection_pad3d_backward_out_cuda"),
    "nll_loss2d": (lambda d: F.nll_loss(zeros(d, 2, 3, 2, 2), long(d, 2, 2, 2)), "nll_loss2d_forward_out_cuda_template"),
    "ctc_loss": (ctc, "ctc_loss_backward_gpu"),
    "embedding_bag": (bag("max"), "embedding_bag_backward_cuda_max"),
    "put_": (lambda d: zeros(d, 4).put_(long(d, 2), zeros(d, 2), accumulate=True), "put_"),
    "take": (lambda d: zeros(d, 4).requires_grad_().take(long(d, 2)).sum().backward(), "put_"),
    "histc": (lambda d: torch.histc(zeros(d, 4)), "_histc_cuda with floating point input"),
    "bincount": (lambda d: torch.bincount(long(d, 4), zeros(d, 4)), "_bincount_cuda"),
    "median": (lambda d: torch.median(zeros(d, 4), 0), "median CUDA with indices output"),
    "grid_sample": (
        backward_of(lambda x: F.grid_sample(x, zeros(str(x.device), 1, 2, 2, 2), align_corners=False), 1, 1, 4, 4),
        "grid_sampler_2d_backward_cuda",
    ),
    "scatter_reduce": (
        lambda d: zeros(d, 4).scatter_reduce(0, long(d, 2), zeros(d, 2), "prod"), "scatter_reduce_cuda_prod_",
    ),
    "scatter": (
        lambda d: zeros(d, 4).scatter(0, long(d, 2), zeros(d, 2), reduce="multiply"), "scatter_reduce_cuda_kernel",
    ),
    "index_reduce": (lambda d: zeros(d, 4).index_reduce(0, long(d, 2), zeros(d, 2), "prod"), "index_reduce_cuda"),
}  # fmt: skip

ACCEPTED: dict[str, Call] = {
    "adaptive_avg_pool2d to one": backward_of(lambda x: F.adaptive_avg_pool2d(x, 1), 1, 1, 4, 4),
    "max_pool2d": backward_of(lambda x: F.max_pool2d(x, 2), 1, 1, 4, 4),
    "bilinear": resized("bilinear", 1, 1, 4, 4),
    "reflected 2d": padded("reflect", 2),
    "embedding_bag sum": bag("sum"),
    "nll_loss": lambda d: F.nll_loss(zeros(d, 2, 3), long(d, 2)),
    "bincount without weights": lambda d: torch.bincount(long(d, 4)),
    "median of all": lambda d: torch.median(zeros(d, 4)),
    "scatter_reduce amax": lambda d: zeros(d, 4).scatter_reduce(0, long(d, 2), zeros(d, 2), "amax"),
    "cumsum": lambda d: torch.cumsum(zeros(d, 4), 0),
}


@pytest.fixture
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_kernel_refuses_to_be_deterministic(name: str, cuda: Rehearsal) -> None:
    call, kernel = REFUSED[name]

    call("cpu")
    with pytest.raises(RuntimeError) as caught:
        call("cuda")

    assert str(caught.value).startswith(f"{kernel} does not have a deterministic implementation, but you set ")


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.parametrize("name", ACCEPTED)
def test_kernel_is_deterministic(name: str, cuda: Rehearsal) -> None:
    ACCEPTED[name]("cuda")


@pytest.mark.usefixtures("_deterministic")
def test_warning_where_one_is_asked_for(cuda: Rehearsal) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)

    with pytest.warns(
        UserWarning, match="_histc_cuda .* 'torch.use_deterministic_algorithms\\(True, warn_only=True\\)'"
    ):
        torch.histc(torch.zeros(4, device="cuda"))


def test_nobody_asked(cuda: Rehearsal) -> None:
    torch.histc(torch.zeros(4, device="cuda"))
