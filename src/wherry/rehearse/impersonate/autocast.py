"""torch.autocast of a virtual device: its default dtype, and the op lists of a device rather than those of the CPU.

On a real build each type of device has a switch, a dtype and a list of its own. C++ keeps the device's switch and dtype here
too, but to the dispatcher our tensors are on the CPU. So the CPU's switch is on whenever the device's or the CPU's own
should be ("lent"), and what the program set for the CPU is kept beside it. While a rehearsal uses autocast, every op that
the device's list or the CPU's has an opinion on gets a kernel of ours under the CPU's autocast key. It looks where the
operands reside: what is on the device follows the device's list, and what is on the host the CPU's.

Which ops a device's list holds is read from the dispatcher of this torch, whose CPU build registers them too; how each is
cast stands below. Sources: aten/src/ATen/autocast_mode.h (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE) and autocast_mode.cpp (the lists of MPS); the page "Automatic Mixed
Precision package" of the PyTorch documentation lists the same ops by name.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherry.dispatch import autocast_kernel, autocast_list, below_autocast, overload_named, run_kernel, signature
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.records import residence
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.mode import Mode

_is_enabled, _set_enabled = torch.is_autocast_enabled, torch.set_autocast_enabled
_get_dtype, _set_dtype = torch.get_autocast_dtype, torch.set_autocast_dtype

TO_LOWER = frozenset(
    """
    _convolution _convolution.deprecated _cudnn_rnn _scaled_dot_product_flash_attention _thnn_fused_gru_cell _thnn_fused_lstm_cell
    addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution cudnn_convolution cudnn_convolution_transpose _mps_convolution einsum gru_cell
    linalg_multi_dot linalg_vecdot linear lstm_cell matmul mm mv prelu rnn_relu_cell rnn_tanh_cell
    scaled_dot_product_attention
    """.split()
)
"""Ops that a device computes in the lower precision."""

TO_FLOAT32 = frozenset(
    """
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d acos asin batch_norm binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss
    cosine_similarity dist erfinv exp expm1 frobenius_norm.dim group_norm hinge_embedding_loss huber_loss kl_div l1_loss
    layer_norm linalg_matrix_sqrth log log10 log1p log2 logsumexp margin_ranking_loss mse_loss multi_margin_loss
    multilabel_margin_loss native_layer_norm nll_loss nll_loss2d norm.Scalar norm.ScalarOpt_dim nuclear_norm
    nuclear_norm.dim pdist
    poisson_nll_loss pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss
    soft_margin_loss softplus tan triplet_margin_loss upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
    """.split()
)
"""Ops that a device computes in float32."""

TO_FLOAT32_UNLESS_TOLD = frozenset(
    """
    cumprod cumsum linalg_matrix_norm linalg_matrix_norm.str_ord linalg_vector_norm log_softmax.int prod prod.dim_int
    softmax.int sum sum.dim_IntList
    """.split()
)
"""The same, unless the call names the dtype of its result."""

TO_WIDEST = frozenset(
    """
    addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot
    """.split()
)
"""Ops whose operands must agree: all go to the widest dtype among them."""

BANNED = frozenset({"binary_cross_entropy"})
"""Ops that a device's autocast refuses (autocast_mode.cpp, `binary_cross_entropy_banned`)."""

_library: torch.library.Library | None = None


def _resident(value: Any, device_type: str) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
        and residence(value).type == device_type
    )


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


def _cast(value: Any, dtype: torch.dtype, device_type: str) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, dtype, device_type) for item in value)
    return value.to(dtype) if _resident(value, device_type) and value.dtype is not dtype else value


def _widest(values: Any, lower: torch.dtype, device_type: str) -> torch.dtype:
    """The dtype that operands agree on: float32 if one has it (autocast_mode.h, `prioritize`)."""
    widest = lower
    for value in _leaves(values):
        if _resident(value, device_type):
            if torch.float32 in (widest, value.dtype):
                widest = torch.float32
            elif value.dtype is not lower:
                raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
    return widest


def _kernel(name: str) -> Callable[..., Any]:
    """What stands under the CPU's autocast key for an op."""
    overload = overload_named(name)
    of_the_cpu = autocast_kernel(overload)

    def untouched(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the op as it is. Of a composite, the ops it is made of are cast each by its own list."""
        if signature(overload).implicit:
            return run_kernel(overload, "CompositeImplicitAutograd", args, kwargs)
        with below_autocast():
            return overload(*args, **kwargs)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        device_type = None if mode is None or not mode.session.places else mode.session.backend.device_type
        if device_type is None or not any(_resident(v, device_type) for v in _leaves((*args, *kwargs.values()))):
            enabled, lower = _of_the_host()
            if of_the_cpu is None or not enabled:
                return untouched(args, kwargs)
            with _lower_is(lower):
                return of_the_cpu(*args, **kwargs)
        if not _is_enabled(device_type) or name not in autocast_list(device_type):
            return untouched(args, kwargs)
        lower = _get_dtype(device_type)
        if name in TO_LOWER:
            astray = any(_resident(value, "cpu") for value in _leaves((*args, *kwargs.values())))
            if of_the_cpu is not None and not astray:
                with _lower_is(lower):
                    return of_the_cpu(*args, **kwargs)  # which keeps the casts of parameters, as a device's does
            dtype: torch.dtype | None = lower
        elif name in TO_FLOAT32_UNLESS_TOLD:
            dtype = None if kwargs.get("dtype") is not None else torch.float32
        elif name in TO_WIDEST:
            dtype = _widest((*args, *kwargs.values()), lower, device_type)
        else:
            dtype = torch.float32
        if dtype is not None:
            args = tuple(_cast(value, dtype, device_type) for value in args)
            kwargs = {key: _cast(value, dtype, device_type) for key, value in kwargs.items()}
        with below_autocast():
            return overload(*args, **kwargs)

    return kernel


def overridden(device_type: str) -> frozenset[str]:
    """The ops that get a kernel: those of the device's list and of the CPU's, as far as this torch lets go of the latter."""
    known = TO_LOWER | TO_FLOAT32 | TO_FLOAT32_UNLESS_TOLD | TO_WIDEST
    wanted = (autocast_list(device_type) & known) | autocast_list("cpu")
    replaceable = {name for name in wanted if name not in autocast_list("cpu") or autocast_kernel(overload_named(name))}
    return frozenset(replaceable) - BANNED


_given: set[str] = set()  # the ops that have a kernel of ours
_complete: set[str] = set()  # the device types whose ops all have


_lock = threading.Lock()  # threads that rehearse side by side begin to use autocast when they like


def _complete_the_lists(device_type: str) -> None:
    global _library
    if device_type in _complete:
        return
    with _lock, warnings.catch_warnings():
        missing = overridden(device_type) - _given
        if _library is None:
            _library = torch.library.Library("aten", "IMPL", "AutocastCPU")  # `withdraw` destroys it
        warnings.simplefilter("ignore")  # that a kernel is replaced, which is the point
        for name in missing:
            _library.impl(name, _kernel(name))
        _given.update(missing)
        _complete.add(device_type)


def withdraw() -> None:
    """Take the kernels back; when the last rehearsal has ended."""
    global _library
    with _lock:
        if _library is not None:
            _library._destroy()
            _library = None
            _given.clear()
            _complete.clear()


class _Lending(threading.local):
    """Whether the CPU's switch stands in for a device's in this thread, and then what the program set for the CPU itself."""

    lent = False
    enabled = False
    dtype = torch.bfloat16


_lending = _Lending()


def _is_on(mode: Mode | None) -> bool:
    """Whether the autocast of the rehearsed device is on in this thread."""
    return mode is not None and bool(mode.session.places) and _is_enabled(mode.session.backend.device_type)


def settle() -> None:
    """Lend the CPU's switch, or take it back, as the switches of this thread and its rehearsal have it now."""
    mode = thread.mode
    on = _is_on(mode)
    if on and not _lending.lent:
        _lending.enabled, _lending.dtype = _is_enabled("cpu"), _get_dtype("cpu")
        _lending.lent = True
        _set_enabled("cpu", True)
    elif _lending.lent and not on:
        _lending.lent = False
        _set_enabled("cpu", _lending.enabled)
        _set_dtype("cpu", _lending.dtype)
    if mode is not None and mode.session.places and (on or _is_enabled("cpu")):
        _complete_the_lists(mode.session.backend.device_type)


def _of_the_host() -> tuple[bool, torch.dtype]:
    """What the program set for the CPU."""
    return (_lending.enabled, _lending.dtype) if _lending.lent else (_is_enabled("cpu"), _get_dtype("cpu"))


def is_enabled(device_type: str = "cuda") -> bool:
    """torch.is_autocast_enabled."""
    return _lending.enabled if device_type == "cpu" and _lending.lent else _is_enabled(device_type)


def get_dtype(device_type: str) -> torch.dtype:
    """torch.get_autocast_dtype."""
    return _lending.dtype if device_type == "cpu" and _lending.lent else _get_dtype(device_type)


def set_enabled(*args: Any) -> None:
    """torch.set_autocast_enabled, with a device type or, for CUDA, without."""
    if len(args) == 2 and args[0] == "cpu" and _lending.lent:
        _lending.enabled = args[1]
        return
    _set_enabled(*args)
    settle()


def set_dtype(device_type: str, dtype: torch.dtype) -> None:
    """torch.set_autocast_dtype."""
    if device_type == "cpu" and _lending.lent:
        _lending.dtype = dtype
        return
    _set_dtype(device_type, dtype)


@contextlib.contextmanager
def _lower_is(dtype: torch.dtype) -> Iterator[None]:
    """Let the CPU's kernels cast to this dtype."""
    before = _get_dtype("cpu")
    if before is dtype:
        yield
        return
    _set_dtype("cpu", dtype)
    try:
        yield
    finally:
        _set_dtype("cpu", before)


def _binary_cross_entropy(original: Any) -> Any:
    """A device's autocast refuses it (autocast_mode.cpp, `binary_cross_entropy_banned`)."""

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if _is_on(mode) and any(_resident(value, mode.session.backend.device_type) for value in args):
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
    """Names of torch that read and turn the switches, which torch.autocast itself goes through."""
    for name, stand_in in (
        ("is_autocast_enabled", is_enabled),
        ("get_autocast_dtype", get_dtype),
        ("set_autocast_enabled", set_enabled),
        ("set_autocast_dtype", set_dtype),
        ("is_autocast_cpu_enabled", lambda: is_enabled("cpu")),
        ("get_autocast_cpu_dtype", lambda: get_dtype("cpu")),
        ("set_autocast_cpu_enabled", lambda enabled: set_enabled("cpu", enabled)),
        ("set_autocast_cpu_dtype", lambda dtype: set_dtype("cpu", dtype)),
        ("set_autocast_gpu_dtype", lambda dtype: set_dtype("cuda", dtype)),
    ):
        yield Patch(torch, name, functools.wraps(getattr(torch, name))(stand_in))
    bce = torch._C._nn.binary_cross_entropy
    yield Patch(torch._C._nn, "binary_cross_entropy", _binary_cross_entropy(bce))
