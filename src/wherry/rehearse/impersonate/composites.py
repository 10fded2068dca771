"""Functions whose C++ composite compares devices before its first op.

By the time the dispatcher is asked, such a function has already looked at its arguments, which to it are all on the CPU.
So its check is made here, on the function itself, with the words of the C++ code. Sources are files under
aten/src/ATen/native in PyTorch 2.13; the cell functions decompose otherwise on a device than on the CPU, so it is their
first matrix product on a device that speaks.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wherry.rehearse.exceptions import check_attention
from wherry.rehearse.impersonate.patches import MISSING, Patch, to_torch_function
from wherry.rehearse.impersonate.tensor import settled
from wherry.rehearse.mode import Mode
from wherry.rehearse.surface import thread
from wherry.rehearse.wording import one_device
from wherry.storage import Place

Check = Callable[..., None]
_VF = torch._VF


def _place(mode: Mode, value: Any) -> Place | None:
    return settled(mode, value) if isinstance(value, Tensor) else None


def _places(mode: Mode, values: Sequence[Any]) -> list[Place]:
    return [settled(mode, v) for v in values if isinstance(v, Tensor)]


def recurrent(mode: Mode, *args: Any, **kwargs: Any) -> None:
    """lstm, gru, rnn_tanh, rnn_relu (RNN.cpp, `check_attributes`): padded or packed input, hidden states, parameters."""
    data = args[0]
    packed = (
        isinstance(args[1], Tensor) and isinstance(args[2], Tensor | tuple | list) and isinstance(args[3], tuple | list)
    )
    hidden, params = (args[2], args[3]) if packed else (args[1], args[2])
    hidden = (hidden,) if isinstance(hidden, Tensor) else hidden
    here = settled(mode, data)
    for kind, tensors in (("hidden", hidden), ("parameter", params)):
        for place in _places(mode, tensors):
            if place is not here:
                raise RuntimeError(
                    f"Input and {kind} tensors are not at the same device, found input tensor at {here.name} and {kind} "
                    f"tensor at {place.name}"
                )


def fused_cell(mode: Mode, data: Tensor, hidden: Any, w_ih: Tensor, w_hh: Tensor, *_: Any, **__: Any) -> None:
    """lstm_cell, gru_cell on a device (RNN.cpp): x @ w_ih.t() and h @ w_hh.t() without the bias, then a fused kernel."""
    prefix = mode.session.backend.wording.check_prefix
    state = hidden[0] if isinstance(hidden, list | tuple) else hidden
    places = _places(mode, (data, w_ih, state, w_hh))
    if prefix is None or places[0].index is None:  # an input on the host goes another way (RNN.cpp, `lstm_cell`)
        return
    for left, right in ((data, w_ih), (state, w_hh)):
        a, b = settled(mode, left), settled(mode, right)
        if a is not b:
            raise one_device("mat2", b, a, f"wrapper_{prefix}_mm")


def quantile(mode: Mode, self: Tensor, q: Any, *_: Any, **__: Any) -> None:
    """quantile, nanquantile (Sorting.cpp, `quantile_checks`)."""
    place = _place(mode, q)
    if place is not None and place is not settled(mode, self):
        raise RuntimeError("quantile() q tensor must be on the same device as the input tensor")


def take_along_dim(mode: Mode, self: Tensor, indices: Tensor, *_: Any, **__: Any) -> None:
    """take_along_dim (TensorAdvancedIndexing.cpp, `checkDevice`)."""
    here, there = settled(mode, self), settled(mode, indices)
    if here is not there:
        raise RuntimeError(
            f"Expected tensor to have {here.name} Device, but got tensor with {there.name} Device (while checking arguments "
            "for torch.take_along_dim():)"
        )


def meshgrid(mode: Mode, tensors: Any, *_: Any, **__: Any) -> None:
    """meshgrid and cartesian_prod (TensorShape.cpp)."""
    if len(set(_places(mode, tensors))) > 1:
        raise RuntimeError("meshgrid expects all tensors to have the same device")


def block_diag(mode: Mode, *tensors: Any) -> None:
    """block_diag (TensorShape.cpp)."""
    places = _places(mode, tensors)
    for number, place in enumerate(places):
        if place is not places[0]:
            raise RuntimeError(
                "torch.block_diag: input tensors must all be on the same device. Input 0 is on device "
                f"{places[0].name} and input {number} is on device {place.name}"
            )


def window(name: str) -> Check:
    """stft, istft (SpectralOps.cpp)."""

    def check(mode: Mode, self: Tensor, *args: Any, **kwargs: Any) -> None:
        given = kwargs.get("window", args[3] if len(args) > 3 else None)
        here, there = settled(mode, self), _place(mode, given)
        if there is not None and there is not here:
            raise RuntimeError(
                f"{name} input and window must be on the same device but got self on {here.name} and window on {there.name}"
            )

    return check


_NORM = ("weight", "bias", "running_mean", "running_var")


def _same_device(mode: Mode, data: Tensor, given: Mapping[str, Any], kernel: str) -> None:
    prefix = mode.session.backend.wording.check_prefix
    here = settled(mode, data)
    for name, value in given.items():
        place = _place(mode, value)
        if prefix is not None and place is not None and place is not here:
            raise one_device(name, place, here, f"wrapper_{prefix}_{kernel}")


def rms_norm(mode: Mode, data: Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> None:
    """A norm that is one kernel on a device, and a composite on the CPU (layer_norm.cpp)."""
    _same_device(mode, data, {"weight": weight}, "__fused_rms_norm")


def _norm_kernel(mode: Mode, data: Tensor, given: Mapping[str, Any]) -> str:
    """Which kernel a batch norm takes (Normalization.cpp, `_select_batch_norm_backend`)."""
    training = bool(given.get("training", given.get("use_input_stats")))
    virtual = mode.session.backend.virtual
    weight, running = given["weight"], [given["running_mean"], given["running_var"]]
    cudnn = (
        settled(mode, data).index is not None
        and virtual is not None
        and "cudnn" in virtual.libraries
        and weight is not None
        and given["bias"] is not None
        and torch.bfloat16 not in (data.dtype, weight.dtype)
        and (data.dtype != torch.half or weight.dtype == torch.float)
        and (None not in running or (training and running == [None, None]))
        and data.dim() >= 3
        and data.shape[0] <= (880801 if training else 65535)
        and given.get("enabled", given.get("cudnn_enabled", True))
    )
    return "_cudnn_batch_norm" if cudnn else "_native_batch_norm"


def batch_norm(mode: Mode, data: Tensor, *args: Any, **kwargs: Any) -> None:
    """batch_norm, instance_norm: one of two kernels (Normalization.cpp)."""
    given = (
        dict.fromkeys(_NORM)
        | dict(zip((*_NORM, "training", "momentum", "eps", "enabled"), args, strict=False))
        | kwargs
    )
    operands = {name: given[name] for name in _NORM}
    if len(set(_places(mode, [data, *operands.values()]))) > 1:
        _same_device(mode, data, operands, _norm_kernel(mode, data, given))


def inner(mode: Mode, self: Tensor, other: Tensor, *_: Any, **__: Any) -> None:
    """inner (Linear.cpp): types of devices are compared, of scalars too."""
    here, there = settled(mode, self).type, settled(mode, other).type
    if here != there:
        raise RuntimeError(
            f"Expected tensor to have {here} DeviceType, but got tensor with {there} DeviceType (while checking arguments "
            "for inner())"
        )


def tensor_split(mode: Mode, self: Tensor, sections: Any = None, *_: Any, **kwargs: Any) -> None:
    """tensor_split reads its indices on the host (TensorShape.cpp)."""
    place = _place(mode, kwargs.get("tensor_indices_or_sections", sections))
    if place is not None and place.index is not None:
        raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {place.name}")


def grid_sampler(mode: Mode, data: Tensor, grid: Tensor, *args: Any, **kwargs: Any) -> None:
    """grid_sampler takes another kernel where cuDNN can do it (GridSampler.cpp, `cond_cudnn_grid_sampler`)."""
    names = ("interpolation_mode", "padding_mode", "align_corners")
    given = dict(zip(names, args, strict=False)) | kwargs
    virtual, prefix = mode.session.backend.virtual, mode.session.backend.wording.check_prefix
    here, there = settled(mode, data), settled(mode, grid)
    if (
        here is not there
        and None not in (here.index, there.index)
        and virtual is not None
        and "cudnn" in virtual.libraries
        and given["interpolation_mode"] == given["padding_mode"] == 0  # bilinear, zeros
        and given["align_corners"]
        and data.dim() == 4
        and data.shape[1] <= 1024
    ):
        raise one_device("grid", there, here, f"wrapper_{prefix}__cudnn_grid_sampler")


def multi_dot(mode: Mode, tensors: Any, **_: Any) -> None:
    """linalg.multi_dot (LinearAlgebra.cpp)."""
    places = _places(mode, tensors)
    for number, place in enumerate(places):
        if place is not places[0]:
            raise RuntimeError(
                f"multi_dot(): all tensors must be on the same device but tensor 0 is on {places[0].name} and tensor {number} "
                f"on {place.name}"
            )


def gradient(mode: Mode, data: Tensor, *, spacing: Any = 1, **_: Any) -> None:
    """gradient, of which spacings may be tensors (ReduceOps.cpp, `gradient_helper`)."""
    here = settled(mode, data)
    for place in _places(mode, spacing) if isinstance(spacing, list | tuple) else ():
        if place is not here:
            raise RuntimeError(
                f"torch.gradient expected each tensor to be on the same device, but got devices {here.name} and {place.name}!"
            )


def attention(mode: Mode, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> None:
    """scaled_dot_product_attention (transformers/attention.cpp, `validate_sdpa_input`)."""
    if not any(tensor.is_meta for tensor in (query, key, value)):
        check_attention(*_places(mode, (query, key, value)))


def cholesky_solve(mode: Mode, self: Tensor, input2: Tensor, *_: Any, **__: Any) -> None:
    """cholesky_solve (LinearAlgebraUtils.h, `linearSolveCheckInputs`)."""
    here, there = settled(mode, self), settled(mode, input2)
    if here is not there:
        raise RuntimeError(
            f"Expected b and A to be on the same device, but found b on {here.name} and A on {there.name} instead."
        )


_ON_VF: dict[str, Check] = {
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell"), fused_cell),
    **dict.fromkeys(("meshgrid", "cartesian_prod"), meshgrid),
    "stft": window("stft"),
}
"""Names that torch's own Python code takes from torch._VF, and programs from torch."""

_ON_TORCH: dict[str, Check] = {
    **dict.fromkeys(("quantile", "nanquantile"), quantile),
    "take_along_dim": take_along_dim,
    "istft": window("istft"),
    "cholesky_solve": cholesky_solve,
    "inner": inner,
    "tensor_split": tensor_split,
}
"""Names of torch that are methods of torch.Tensor too."""


_ON_TORCH_ONLY: dict[str, Check] = {
    "block_diag": block_diag,
    "gradient": gradient,
    "grid_sampler": grid_sampler,
    "rms_norm": rms_norm,
    **dict.fromkeys(("batch_norm", "instance_norm"), batch_norm),
}


_FIRST = ("input", "self", "x", "tensors")
"""Names by which a first argument may be given: the binding's own, the schema's, numpy's."""


def _checking(original: Any, check: Check) -> Any:
    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is not None and mode.session.places:
            answer = to_torch_function(stand_in, args, kwargs)
            if answer is not MISSING:
                return answer
            named = dict(kwargs)
            first = () if args else tuple(named.pop(name) for name in _FIRST if name in named)
            with contextlib.suppress(TypeError, AttributeError):  # a call that torch does not understand, and says so
                check(mode, *args, *first, **named)
        return original(*args, **kwargs)

    return stand_in


def patches() -> Iterator[Patch]:
    """Names of torch._VF, torch and torch.Tensor."""
    for name, check in _ON_VF.items():
        yield Patch(_VF, name, _checking(getattr(_VF, name), check))
    yield Patch(torch.linalg, "multi_dot", _checking(torch.linalg.multi_dot, multi_dot))
    yield Patch(F, "scaled_dot_product_attention", _checking(F.scaled_dot_product_attention, attention))
    for name, check in _ON_TORCH_ONLY.items():
        yield Patch(torch, name, _checking(getattr(torch, name), check))
    for name, check in _ON_TORCH.items():
        yield Patch(torch, name, _checking(getattr(torch, name), check))
        yield Patch(Tensor, name, _checking(getattr(torch._C.TensorBase, name), check))
