"""torch.autocast of a virtual device: its default dtype, and the op lists of a device rather than those of the CPU.

To the dispatcher our tensors are on the CPU, so the CPU's autocast is switched on in the device's place ("lent"). It has
the right idea of the matrix products, which go to the lower precision, but leaves many ops alone that a device takes to
float32, softmax and the norms among them. Those get a kernel under the CPU's autocast key while autocast is lent; it
casts what resides on the device and leaves the host's tensors alone.

Sources: aten/src/ATen/autocast_mode.h (AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE); the page
"Automatic Mixed Precision package" of the PyTorch documentation lists the same ops by name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from wherry.dispatch import below_autocast, overload_named
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.records import residence
from wherry.rehearse.surface import thread

_autocast = torch.amp.autocast_mode.autocast
_enter, _exit = _autocast.__enter__, _autocast.__exit__

_TO_FLOAT32 = [
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "softplus",
    "layer_norm",
    "native_layer_norm",
    "group_norm",
    "cosine_similarity",
    "dist",
    "pdist",
    "renorm",
    "logsumexp",
    "frobenius_norm.dim",
    "nuclear_norm",
    "nuclear_norm.dim",
    "norm.Scalar",
    "norm.ScalarOpt_dim",
]
"""Ops that a device computes in float32, and that the CPU's lists do not mention."""

_TO_FLOAT32_UNLESS_TOLD = [
    "softmax.int",
    "log_softmax.int",
    "cumprod",
    "cumsum",
    "sum",
    "sum.dim_IntList",
    "linalg_vector_norm",
]
"""The same, unless the call names the dtype of its result."""

_TO_WIDEST = [
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cross",
    "dot",
    "vdot",
    "index_put",
    "tensordot",
    "scatter_add",
]
"""Ops whose operands must agree: all go to the widest dtype among them."""

_library: torch.library.Library | None = None


def _resident(value: Any, device_type: str) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
        and residence(value).type == device_type
    )


def _cast(value: Any, dtype: torch.dtype, device_type: str) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, dtype, device_type) for item in value)
    return value.to(dtype) if _resident(value, device_type) else value


def _kernel(name: str) -> Any:
    overload = overload_named(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        with below_autocast():
            if mode is None or not mode.autocast_lent:
                return overload(*args, **kwargs)  # the CPU's own autocast, which has no opinion on this op
            device_type = mode.session.backend.device_type
            dtype: torch.dtype | None = torch.float32
            if name in _TO_FLOAT32_UNLESS_TOLD and kwargs.get("dtype") is not None:
                dtype = None
            elif name in _TO_WIDEST:
                wide = any(_resident(v, device_type) and v.dtype is torch.float32 for v in (*args, *kwargs.values()))
                dtype = torch.float32 if wide else None
            if dtype is not None:
                args = tuple(_cast(value, dtype, device_type) for value in args)
                kwargs = {key: _cast(value, dtype, device_type) for key, value in kwargs.items()}
            return overload(*args, **kwargs)

    return kernel


def _complete_the_lists() -> None:
    global _library
    if _library is None:
        _library = torch.library.Library("aten", "IMPL", "AutocastCPU")  # `withdraw` destroys it
        for name in (*_TO_FLOAT32, *_TO_FLOAT32_UNLESS_TOLD, *_TO_WIDEST):
            _library.impl(name, _kernel(name))


def withdraw() -> None:
    """Take the kernels back; when the last rehearsal has ended."""
    global _library
    if _library is not None:
        _library._destroy()
        _library = None


def enter_autocast(self: Any) -> Any:
    """`with torch.autocast("cuda")`: lend it the CPU's. For the CPU itself: nothing is lent inside."""
    out = _enter(self)
    mode = thread.mode
    if mode is None or not mode.session.places or torch._jit_internal.is_scripting():
        return out
    lent = self.__dict__.setdefault("_wherry_lent", [])
    lent.append((mode.autocast_lent, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
    if self.device == mode.session.backend.device_type:
        _complete_the_lists()
        mode.autocast_lent = self._enabled
        torch.set_autocast_enabled("cpu", self._enabled)
        torch.set_autocast_dtype("cpu", self.fast_dtype)
    elif self.device == "cpu":
        mode.autocast_lent = False
    return out


def exit_autocast(self: Any, *error: Any) -> Any:
    """Back to what was lent before."""
    lent = self.__dict__.get("_wherry_lent")
    if lent:
        before, enabled, dtype = lent.pop()
        if thread.mode is not None:
            thread.mode.autocast_lent = before
        if self.device != "cpu":
            torch.set_autocast_enabled("cpu", enabled)
            torch.set_autocast_dtype("cpu", dtype)
    return _exit(self, *error)


def _binary_cross_entropy(original: Any) -> Any:
    """A device's autocast refuses it (autocast_mode.cpp, `binary_cross_entropy_banned`)."""

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if (
            mode is not None
            and mode.autocast_lent
            and any(_resident(value, mode.session.backend.device_type) for value in args)
        ):
            raise RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
                "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
                "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
                "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
                "safe to autocast."
            )
        return original(*args, **kwargs)

    return stand_in


def patches() -> Iterator[Patch]:
    """Names of torch.amp."""
    yield Patch(_autocast, "__enter__", functools.wraps(_enter)(enter_autocast))
    yield Patch(_autocast, "__exit__", functools.wraps(_exit)(exit_autocast))
    bce = torch._C._nn.binary_cross_entropy
    yield Patch(torch._C._nn, "binary_cross_entropy", _binary_cross_entropy(bce))
