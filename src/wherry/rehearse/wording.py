"""The words of device errors, as PyTorch's own checks word them (2.6 to 2.14).

Every function returns the exception for its caller to raise, so that the raise stands where the law is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from wherry.backends._backend import Backend, printed
from wherry.dispatch import OpOverload, without_modes
from wherry.native_functions import native
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.records import Operand


@lru_cache(maxsize=1)
def torch_release() -> tuple[int, int]:
    """(2, 13) for "2.13.0+cpu"."""
    major, minor, *_ = torch.__version__.split("+")[0].split(".")
    return int(major), int(minor)


def two_devices(common: Place, other: Place) -> RuntimeError:
    """TensorIterator's text, on every backend (aten/src/ATen/TensorIterator.cpp, `compute_types`)."""
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {common.name} and {other.name}!"
    )


def shapes_apart(operands: Sequence[Operand]) -> RuntimeError | None:
    """What an iterator says of shapes, which it looks at before devices (TensorIterator.cpp `compute_shape`, ExpandUtils.cpp)."""
    shape: list[int] = []
    for operand in operands:
        if operand.output and operand.keyword_only:
            continue  # out= is resized
        other = list(operand.tensor.shape)
        width = max(len(shape), len(other))
        ours, theirs = [1] * (width - len(shape)) + shape, [1] * (width - len(other)) + other
        for dim, (a, b) in reversed(list(enumerate(zip(ours, theirs, strict=True)))):
            if a != b and 1 not in (a, b):
                return RuntimeError(
                    f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {dim}"
                )
        shape = [b if a == 1 else a for a, b in zip(ours, theirs, strict=True)]
    for operand in operands:
        if operand.output and not operand.keyword_only and list(operand.tensor.shape) != shape:
            found = list(operand.tensor.shape)
            return RuntimeError(f"output with shape {found} doesn't match the broadcast shape {shape}")
    return None


def too_many_scalars() -> RuntimeError:
    """Two 0-dim host operands in one iterator (aten/src/ATen/TensorIterator.cpp)."""
    return RuntimeError("Trying to pass too many CPU scalars to non-CPU kernel!")


def not_on_device(argument: int, found: Place) -> RuntimeError:
    """The assertion of a CUDA loop (aten/src/ATen/native/cuda/Loops.cuh, `gpu_kernel`); its line moves with releases."""
    line = 118 if torch_release() >= (2, 13) else 104
    return RuntimeError(
        f'iter.device(arg).is_cuda() INTERNAL ASSERT FAILED at "/pytorch/aten/src/ATen/native/cuda/Loops.cuh":{line}, please '
        f"report a bug to PyTorch. argument {argument}: expected a CUDA device but found {found.name}"
    )


def output_elsewhere(expected: Place, found: Place) -> RuntimeError:
    """An `out=` that a structured kernel would resize (aten/src/ATen/native/Resize.h and structured `set_output`)."""
    return RuntimeError(f"Expected out tensor to have device {expected.name}, but got {found.name} instead")


def one_device(argument: str, found: Place, common: Place, wrapper: str) -> RuntimeError:
    """The generated check's text; it changed in 2.8 (c10, `common_device_check_failure`)."""
    if torch_release() >= (2, 8):
        return RuntimeError(
            f"Expected all tensors to be on the same device, but got {argument} is on {found.name}, different from other "
            f"tensors on {common.name} (when checking argument in method {wrapper})"
        )
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {common.name} and {found.name}! "
        f"(when checking argument for argument {argument} in method {wrapper})"
    )


def legacy_name(dtype: torch.dtype) -> str:
    """How c10 prints a dtype: "Float", "Long" (c10/core/ScalarType.h)."""
    return printed(str(dtype).removeprefix("torch."))


def type_name(dtype: torch.dtype, place: Place, backend: Backend) -> str:
    """What `Tensor.type()` answers: "torch.cuda.FloatTensor" (torch/csrc/utils/tensor_types.cpp)."""
    kind = f"{legacy_name(dtype)}Tensor"
    if place.index is None:
        return f"torch.{kind}"
    prefix = backend.wording.tensor_type or f"torch.{place.type}"
    return f"{prefix}.{kind}"


_OTHERWISE_ON_A_DEVICE = (
    (re.compile(r"^expected m1 and m2 to have the same dtype"), "expected mat1 and mat2 to have the same dtype"),
)
"""What the CPU's kernel says, and what the kernel of a device says in its place."""

_LEGACY_TYPE = re.compile(r"\btorch\.(\w+Tensor)\b")


def in_words_of(backend: Backend, place: Place | None, error: Exception) -> Exception:
    """An error of a CPU kernel as the device's kernel would word it: type names and the few texts known to differ."""
    if place is None or place.index is None or not error.args or not isinstance(error.args[0], str):
        return error
    text = error.args[0]
    prefix = backend.wording.tensor_type
    if prefix:
        text = _LEGACY_TYPE.sub(rf"{prefix}.\1", text)
    text = text.replace("CPUFloatType", f"{place.type.upper()}FloatType")
    for pattern, replacement in _OTHERWISE_ON_A_DEVICE:
        text = pattern.sub(replacement, text)
    if text != error.args[0]:
        error.args = (text, *error.args[1:])
    return error


_KERNELS = re.compile(r"'aten::([\w.]+)' is only available for these backends: \[([^\]]*)\]")


def without_kernel(backend: Backend, error: NotImplementedError) -> NotImplementedError:
    """The words "Could not run ...", with the kernels that a build for the device has beside those of this build.

    The lines behind the list say where in the sources of this very build its kernels are registered, and stay as they
    are (aten/src/ATen/core/dispatch/OperatorEntry.cpp, `reportError`).
    """

    def joined(match: re.Match[str]) -> str:
        keys = match.group(2).split(", ")
        entry = native(match.group(1))
        prefix = backend.wording.check_prefix or backend.device_type.upper()
        for key in sorted(entry.keys if entry is not None else ()):
            flavour = key.removesuffix(prefix)
            if flavour != key and key not in keys:
                keys.insert(keys.index(f"{flavour}CPU") + 1 if f"{flavour}CPU" in keys else 0, key)
        return match.group(0).replace(match.group(2), ", ".join(keys))

    return NotImplementedError(_KERNELS.sub(joined, str(error)))


def no_kernel(func: OpOverload, key: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Exception:
    """What the dispatcher says of an op that has no kernel for a dispatch key (OperatorEntry.cpp, `reportError`).

    It is asked with sparse tensors, for which there is none either.
    """
    with without_modes():
        sparse = torch.empty(1, layout=torch.sparse_coo)

        def absent(value: object) -> object:
            if isinstance(value, list | tuple):
                return [absent(item) for item in value]
            return sparse if isinstance(value, torch.Tensor) else value

        try:
            func(*map(absent, args), **{name: absent(value) for name, value in kwargs.items()})
        except NotImplementedError as error:
            return NotImplementedError(str(error).replace("'SparseCPU' backend", f"'{key}' backend"))
        except RuntimeError:
            pass  # it does have one
    return NotImplementedError(f"Could not run '{func.name()}' with arguments from the '{key}' backend.")


def not_convertible_to_numpy(place: Place) -> TypeError:
    """`Tensor.numpy()` of a tensor on a device (torch/csrc/utils/tensor_numpy.cpp)."""
    return TypeError(
        f"can't convert {place.name} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
    )
