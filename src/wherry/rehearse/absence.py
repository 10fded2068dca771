"""What torch says of a device that is not there: another backend's, or an index beyond the last.

The words are each backend's own (`Wording`); this is where they become exceptions.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

import torch

from wherry import backends
from wherry.backends._backend import Backend
from wherry.rehearse.wording import torch_release

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal


def exception(kind: str, text: str) -> Exception:
    """An exception by the name of its class, a builtin's or one of torch's."""
    cls = getattr(builtins, kind, None) or getattr(torch, kind.rpartition(".")[2])
    return cls(text)


def absent(device_type: str, *, moving: bool = False) -> Exception:
    """What the first use of an absent device type raises: an allocation, or a `.to` when `moving`."""
    for backend in backends.all():
        if backend.device_type == device_type and backend.name != "cpu":
            wording = backend.wording
            chosen = wording.absent_to if moving else wording.absent_alloc
            return exception(*(chosen or wording.lazy_init))
    return RuntimeError(f"PyTorch is not linked with support for {device_type} devices")


def refuse_to_start(device_type: str) -> None:
    """Raise what `_lazy_init` of an absent device does, where it comes before the look for a kernel.

    C++ calls it once in the life of a process: a rehearsal of that device may have answered (device_lazy_init.cpp).
    """
    for backend in backends.all():
        if backend.device_type == device_type and backend.name != "cpu" and backend.wording.absent_alloc is None:
            raise exception(*backend.wording.lazy_init)


def is_foreign(session: Rehearsal, device_type: str) -> bool:
    """Whether neither the rehearsal nor this torch has such devices, so that torch's own error is the right one."""
    if device_type == session.backend.device_type:
        return False
    built = {"cuda": torch._C._has_cuda, "mps": torch._C._has_mps, "xpu": torch._C._has_xpu}
    return not built.get(device_type, False)


def invalid_ordinal(backend: Backend, index: int | None = None, count: int = 0) -> Exception:
    """What an index beyond the last device raises (c10/cuda/CUDAException.cpp, c10/xpu/XPUFunctions.h)."""
    if backend.device_type == "xpu" and index is not None:
        return RuntimeError(f"The device index is out of range. It must be in [0, {count}), but got {index}.")
    word = "HIP" if backend.name == "rocm" else backend.device_type.upper()
    text = f"{word} error: invalid device ordinal\n"
    if torch_release() < (2, 8):
        variable = "AMD_SERIALIZE_KERNEL=3" if word == "HIP" else "CUDA_LAUNCH_BLOCKING=1"
        return RuntimeError(
            f"{text}{word} kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
            f"might be incorrect.\nFor debugging consider passing {variable}\n"
            f"Compile with `TORCH_USE_{word}_DSA` to enable device-side assertions.\n"
        )
    text += "GPU device may be out of range, do you have enough GPUs?"
    if torch_release() == (2, 13):
        text += "\nFor more detailed error information, run with CUDA_LOG_FILE=stderr"
    text += "\n"
    return accelerator_error(text, code=101)  # cudaErrorInvalidDevice


def accelerator_error(text: str, *, code: int) -> Exception:
    """An error of the device's runtime; it has a class of its own since 2.8."""
    if torch_release() < (2, 8):
        return RuntimeError(text)
    error = torch.AcceleratorError(text)
    error.error_code = code
    return error
