"""How does one tensor become an array of another library, and an array a tensor?

    to_numpy(tensor) -> numpy.ndarray       shares the memory of a tensor on the host, as `Tensor.numpy` does
    to_mlx(tensor) -> mlx.core.array        one copy, from whatever device
    from_mlx(array) -> Tensor               shares the memory of the array
    is_mlx(obj)                             whether it is an MLX array; imports nothing
    numpy_holds(dtype), mlx_holds(dtype)    whether a tensor arrives with the dtype that it has

What a dtype becomes where it is not held: bfloat16 becomes float32 for NumPy, which holds each of its values exactly;
float64 becomes float32 for an MLX whose default device is a GPU, which rounds, as for MPS, and the caller warns. Anything
else is refused, and the refusal says what to write.

What surprises. A tensor can be written to, an MLX array is a value: MLX computes lazily, so a write into memory that both
share changes results which were asked for earlier. So torch to MLX copies even where memory could be shared (MPS to Metal),
and MLX to torch shares, as asked, and leaves the writing to the user's judgement. And the protocols for sharing each have a
fault that shows only later (MLX 0.32, torch 2.13), which is why this file does not hand one library's object to the other:

    mx.array(tensor)             drops the conjugate and the negative bit; copies all that a slice spans (0.30: and twice)
    torch.from_dlpack(array)     ends the process (SIGABRT) if a stride is negative
    torch.frombuffer(array)      ignores strides: the values of `array.T` come in the order of `array`
    np.asarray(array)            holds the Python object, not its memory: `array += 1` then frees what the tensor reads

Sources: MLX documentation, "Conversion to NumPy and Other Frameworks"; mlx pull request 3531 for Metal;
tests/move/test_foreign.py for each fault.
"""

from __future__ import annotations

import importlib
import platform
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from wherry import dispatch
from wherry.errors import MissingExtra, Unconvertible

if TYPE_CHECKING:
    import numpy as np

MlxArray: TypeAlias = Any
"""mlx.core.array, which most who check types here have not installed."""

_INTEGERS = (
    torch.bool,
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)
_NUMPY = frozenset((*_INTEGERS, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128))
_MLX = frozenset((*_INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64))
_NUMPY_WIDER = {torch.bfloat16: torch.float32}

_NEAREST = {torch.complex128: torch.complex64, torch.complex32: torch.complex64}
"""What to offer for a dtype that is refused, where it is no float."""


def numpy_holds(dtype: torch.dtype) -> bool:
    """Whether NumPy has a dtype: all but bfloat16, which arrives as float32, and what `to_numpy` refuses."""
    return dtype in _NUMPY


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The values of a tensor as a NumPy array.

    A tensor on the host shares its memory with the array, as with `Tensor.numpy`; exceptions are bfloat16 and pending
    conjugations and negations, whose values have to be computed. From a device it is a complete copy, for which the
    host waits. Gradients are left behind.

    bfloat16 becomes float32. NumPy has no bfloat16 of its own: the one that the package ml_dtypes adds is foreign to most
    of what one calls with an array, and the result must not depend on what happens to be installed. float32 holds every
    bfloat16, so `.bfloat16()` of it brings the very bits back (of a NaN, some NaN). float8 is refused, since its numbers
    mean nothing without the scale that belongs to them.

    Raises:
        Unconvertible: the tensor holds no values of its own (meta, fake, inside vmap or grad), or holds them in a layout
            or dtype that NumPy does not have.
        MissingExtra: NumPy is not installed.
    """
    _numpy()
    plain = _plain(tensor, "a NumPy array")
    if plain.dtype not in _NUMPY and plain.dtype not in _NUMPY_WIDER:
        raise _refused_dtype(plain.dtype, "a NumPy array", "NumPy")
    host = _unexpanded(plain).cpu()  # what is there already is not copied
    host = host.to(_NUMPY_WIDER.get(host.dtype, host.dtype)).resolve_conj().resolve_neg()
    return host.expand(plain.shape).numpy()


def mlx_holds(dtype: torch.dtype) -> bool:
    """Whether MLX has a dtype, and can compute in it on its default device: float64 is for its CPU device alone.

    Raises:
        MissingExtra: MLX, which has to be asked about float64, is not installed.
    """
    return dtype in _MLX and (dtype is not torch.float64 or _computes_float64(_mlx()))


def to_mlx(tensor: torch.Tensor) -> MlxArray:
    """The values of a tensor as an MLX array of its own: one copy, straight from the device into MLX's memory.

    Bits are kept. The array is not changed by what is written to the tensor later. Expanded dimensions take no memory, and
    permuted ones stay permuted; of a slice only what it holds is copied. From a device it is complete, for which the host
    waits. Gradients are left behind. float64 becomes float32 where `mlx_holds` says no.

    Raises:
        Unconvertible: as in `to_numpy`, for MLX: also complex128 and float8.
        MissingExtra: MLX is not installed.
    """
    mx = _mlx()
    plain = _plain(tensor, "an MLX array")
    if plain.dtype not in _MLX:
        raise _refused_dtype(plain.dtype, "an MLX array", "MLX")
    dtype = _mlx_dtype(mx, plain.dtype)
    if plain.is_contiguous():
        return _mlx_copy(mx, plain, dtype)
    # In the order of its memory, and each value once: what is dense is then contiguous, of which every MLX makes one copy.
    source = _unexpanded(plain)
    order = sorted(range(plain.dim()), key=source.stride, reverse=True)
    array = _mlx_copy(mx, source.permute(order), dtype)
    array = mx.transpose(array, [order.index(dim) for dim in range(plain.dim())])
    array = mx.broadcast_to(array, tuple(plain.shape))
    mx.eval(array)  # views as yet, which another thread could not compute
    return array


def _mlx_copy(mx: ModuleType, source: torch.Tensor, dtype: Any) -> MlxArray:
    if source.device.type == "cpu" and source.is_contiguous() and not source.is_conj() and not source.is_neg():
        return mx.array(source, dtype=dtype)
    array = mx.zeros(tuple(source.shape), dtype=dtype)
    # Nobody else has seen this array, so it may be written to. MLX's documentation does so through NumPy.
    from_mlx(array).copy_(source)
    return array


def from_mlx(array: MlxArray) -> torch.Tensor:
    """An MLX array as a tensor on the host that shares its memory, strides included, and keeps it alive.

    The array is computed first if it is not yet. An array with a negative stride (`array[::-1]`) is copied, since torch
    has none. Do not write to the tensor unless nobody uses the array any more, or `.clone()` it: MLX takes arrays for values,
    and what was computed from this one, or is yet to be, may change or not. What is done to the array later
    (`array += 1`, `array[0] = 1`) does not reach the tensor, since MLX then makes another array.

    Raises:
        Unconvertible: it is no MLX array, or one that another thread has to compute.
    """
    np = _numpy()
    if not is_mlx(array):
        name = f"{type(array).__module__}.{type(array).__qualname__}"
        raise Unconvertible(f"A {name}", "a tensor", why="it is no MLX array", fix="Give an mlx.core.array.")
    mx = _mlx()
    half = array.dtype == mx.bfloat16  # NumPy has no word for it, so it gets the bits
    # An alias of our own: another Python object for the same memory. With the user's, `array += 1` would make MLX
    # take the memory for unused, overwrite and free it, whoever holds a buffer of it.
    alias = array.view(mx.uint16 if half else array.dtype)
    try:
        mx.eval(alias)
    except RuntimeError as err:
        if "current thread" not in str(err):
            raise
        raise Unconvertible(
            "An MLX array that is not computed yet",
            "a tensor in this thread",
            why="another thread made it, whose streams alone can compute it",
            fix="Call mx.eval(array) in that thread first.",
        ) from err
    host = np.asarray(alias)
    host = host.view(host.dtype.str)  # uint64 comes as C's unsigned long long, which from_numpy does not know
    if any(stride < 0 for stride in host.strides):
        host = np.ascontiguousarray(host)
    tensor = torch.from_numpy(host)
    return tensor.view(torch.bfloat16) if half else tensor


def is_mlx(obj: object) -> bool:
    """Whether something is an MLX array. Asked for every leaf of an unknown type, so it looks up and imports nothing."""
    kind = getattr(sys.modules.get("mlx.core"), "array", None)
    return kind is not None and isinstance(obj, kind)


def _plain(tensor: torch.Tensor, to: str) -> torch.Tensor:
    """The same values as an ordinary strided tensor that needs no gradient, over the same storage."""
    with dispatch.without_functions():  # a subclass is taken for what it holds
        refusal = _refusal(tensor)
        if refusal is None:
            plain = torch.Tensor.detach(tensor)
            if type(plain) is torch.Tensor:
                return plain
            why = "it answers every operator itself, so that what it holds is not known"
            refusal = _of_class(tensor), why, "Ask it for an ordinary tensor first."
    what, why, fix = refusal
    raise Unconvertible(what, to, why=why, fix=fix)


def _of_class(tensor: torch.Tensor) -> str:
    return f"A tensor of the class {type(tensor).__qualname__}"


def _refusal(tensor: torch.Tensor) -> tuple[str, str, str] | None:
    """What a tensor is, why its values cannot be had as one array, and what to do; or None."""
    if isinstance(tensor, dispatch.FakeTensor):
        return "A FakeTensor", "it has a shape but no values", "Convert the real tensor, outside of FakeTensorMode."
    if dispatch.functorch_level_below(tensor) is not None:
        what = "A tensor inside of vmap, grad or another transform of torch.func"
        return what, "it stands for values that are not known yet", "Convert what the transform returns."
    if tensor.is_nested:
        fix = "Use tensor.to_padded_tensor(0.0), or convert each of tensor.unbind()."
        return "A nested tensor", "its rows differ in length", fix
    if hasattr(type(tensor), "__tensor_flatten__"):
        fix = "Ask it for an ordinary tensor first: full_tensor() of a DTensor, dequantize() of a quantized one."
        return _of_class(tensor), "its values are those of other tensors that it wraps", fix
    if tensor.layout is not torch.strided:
        name = str(tensor.layout).removeprefix("torch.").lstrip("_")
        why = f"its layout is {name}, not strided"
        return f"A tensor of layout {name}", why, "Use tensor.to_dense()."
    if tensor.is_quantized:
        return "A quantized tensor", "its integers mean nothing without their scale", "Use tensor.dequantize()."
    if tensor.device.type == "meta":
        return "A meta tensor", "it has a shape but no values", "Load or compute its values on a real device first."
    return None


def _refused_dtype(dtype: torch.dtype, to: str, library: str) -> Unconvertible:
    name = str(dtype).removeprefix("torch.")
    why = f"{library} has no {name}"
    if dtype.is_floating_point and dtype.itemsize == 1 and "x2" not in name:
        fix = "Use tensor.to(torch.float32) and multiply by its scale, or tensor.view(torch.uint8) for the bits."
    elif (nearest := _NEAREST.get(dtype)) is not None:
        fix = f"Use tensor.to({nearest})."
    else:
        fix = "Use tensor.view(torch.uint8) for the bits."
    return Unconvertible(f"A {name} tensor", to, why=why, fix=fix)


def _mlx_dtype(mx: ModuleType, dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return mx.bool_
    if dtype is torch.float64 and not _computes_float64(mx):
        return mx.float32
    return getattr(mx, str(dtype).removeprefix("torch."))


def _computes_float64(mx: ModuleType) -> bool:
    return mx.default_device().type == mx.cpu


def _unexpanded(plain: torch.Tensor) -> torch.Tensor:
    """The part of it that the rest only repeats, as a view."""
    if 0 not in plain.stride():
        return plain
    return plain[tuple(slice(1) if stride == 0 else slice(None) for stride in plain.stride())]


def _numpy() -> ModuleType:
    try:
        import numpy as np
    except ImportError as err:
        raise MissingExtra("NumPy", "torch", reason=None if err.name == "numpy" else str(err)) from err
    return np


def _mlx() -> ModuleType:
    try:
        return importlib.import_module("mlx.core")
    except ImportError as err:
        absent = err.name in ("mlx", "mlx.core")
        raise MissingExtra("MLX", "mlx", reason=None if absent else str(err), note=_platform_note()) from err


def _platform_note() -> str | None:
    """Why pip will not find it here, or None where it will (the files of MLX 0.32 on PyPI)."""
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return None
    name, version = platform.libc_ver()
    # 2.35 as numbers: as text, "2.4" would come after it.
    if sys.platform == "linux" and name == "glibc" and [int(part) for part in version.split(".")[:2]] >= [2, 35]:
        return None
    return "MLX is built for Macs with Apple silicon and for Linux with glibc 2.35 or newer, which this machine is not."
