"""What a kernel of a device refuses and the CPU's does not: to be deterministic, dtypes, arguments.

The names were read off the host code of torch 2.13.0+cu130. Which dtypes CUDA refuses is in truth/test_cuda_dtypes.py; here is
when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from wherry.rehearse import Rehearsal, rehearse

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


# -- dtypes


REFUSED_PRODUCT = "\"addmm_cuda\" not implemented for 'Long'"


def test_product_of_integers_is_refused_on_the_device_alone(cuda: Rehearsal) -> None:
    host = long("cpu", 2, 2) + 1

    assert (host @ host).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(NotImplementedError) as caught:
        host.cuda() @ host.cuda()

    assert str(caught.value) == REFUSED_PRODUCT


def test_refusal_in_place_writes_nothing(cuda: Rehearsal) -> None:
    written, out = long("cuda", 2, 2), long("cuda", 2, 2)
    one = long("cuda", 2, 2) + 1

    with pytest.raises(NotImplementedError, match="addmm_cuda"):
        written.addmm_(one, one)
    with pytest.raises(NotImplementedError, match="addmm_cuda"):
        torch.mm(one, one, out=out)

    assert written.tolist() == out.tolist() == [[0, 0], [0, 0]]


def test_shapes_are_looked_at_before_dtypes(cuda: Rehearsal) -> None:
    with pytest.raises(RuntimeError) as caught:
        long("cuda", 2, 3).addmm_(long("cuda", 2, 2), long("cuda", 2, 2))

    assert "not implemented" not in str(caught.value)


def test_devices_are_looked_at_before_dtypes(cuda: Rehearsal) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        long("cuda", 2, 2) @ long("cpu", 2, 2)


def test_refusal_allocates_nothing(cuda: Rehearsal) -> None:
    one = long("cuda", 2, 2)
    before = torch.cuda.memory_allocated()

    with pytest.raises(NotImplementedError):
        one @ one

    assert torch.cuda.memory_allocated() == before


def test_helper_of_a_composite_is_refused_where_it_meets_the_device(cuda: Rehearsal) -> None:
    with pytest.raises(NotImplementedError, match="addmm_cuda"):
        torch.linalg.matrix_power(long("cuda", 2, 2), 3)


@pytest.mark.parametrize("backend", ["mps", "xpu"])
def test_product_of_integers_runs_where_nothing_is_known(backend: str) -> None:
    with rehearse(backend) as rehearsal:
        one = long(rehearsal.device, 2, 2) + 1

        assert (one @ one).tolist() == [[2, 2], [2, 2]]


CONVOLVED = {
    "plain": (dict[str, int](), "slow_conv2d_cuda"),
    "dilated": ({"dilation": 2}, "slow_conv_dilated<>"),
    "depthwise": ({"groups": 2}, "conv_depthwise2d_forward_cuda"),
}


@pytest.mark.parametrize("name", CONVOLVED)
@pytest.mark.parametrize("backend", ["cuda", "rocm"])
def test_convolution_of_integers_without_a_library(name: str, backend: str) -> None:
    """MIOpen is not asked for integers. cuDNN is, unless it is turned off."""
    options, kernel = CONVOLVED[name]
    with rehearse(backend), torch.backends.cudnn.flags(enabled=backend == "rocm"):
        image, weight = long("cuda", 1, 2, 4, 4), long("cuda", 2, 2 // options.get("groups", 1), 2, 2)
        with pytest.raises(NotImplementedError) as caught:
            F.conv2d(image, weight, **options)

    assert str(caught.value) == f"\"{kernel}\" not implemented for 'Long'"


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32], ids=str)
def test_cudnn_has_no_algorithm_for_small_integers(dtype: torch.dtype, cuda: Rehearsal) -> None:
    image, weight = long("cuda", 1, 2, 4, 4).to(dtype), long("cuda", 2, 2, 2, 2).to(dtype)

    with pytest.raises(RuntimeError) as caught:
        F.conv2d(image, weight)

    assert str(caught.value) == "GET was unable to find an engine to execute this computation"
