"""Memory of a virtual device: what is allocated, the most there was, and the error when it is full.

Bytes are counted as records come and go (`records.write`, `storage.Resident`). A limit is checked twice: before a
factory or a movement allocates, when the size is known beforehand, so that an impossible request never reaches the
host's memory; and after any other op, when its output turned out too large.

Sizes are those of the storages, without the rounding of the real allocator.
"""

from __future__ import annotations

from typing import Any

import torch

from wherry.backends._backend import Backend
from wherry.dispatch import OpOverload, shape_of_result
from wherry.rehearse import records
from wherry.storage import Place

_backends: dict[str, Backend] = {}  # device type -> the backend whose words are used


def enable(backend: Backend) -> None:
    """Let errors of this device type speak as `backend` does."""
    _backends[backend.device_type] = backend
    records.over_limit = check


def _gib(nbytes: int) -> str:
    """c10's format_size (c10/cuda/CUDACachingAllocator.cpp): two decimals and the largest fitting unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} bytes"


def out_of_memory(place: Place, nbytes: int, *, allocated: int | None = None) -> Exception:
    """What the device raises when `nbytes` more do not fit."""
    assert place.limit is not None
    kind, text = _backends[place.type].wording.out_of_memory
    allocated = place.allocated if allocated is None else allocated
    free = max(place.limit - allocated, 0)
    message = text.format(
        tried_nbytes=nbytes,
        tried=_gib(nbytes),
        index=place.index,
        total=_gib(place.limit),
        free=_gib(free),
        allocated=_gib(allocated),
        reserved="0 bytes",
        other="0 bytes",
        limit=_gib(place.limit),
    )
    cls = torch.OutOfMemoryError if kind.endswith("OutOfMemoryError") else RuntimeError
    return cls(message)


def check(place: Place, nbytes: int) -> None:
    """A storage of `nbytes` was just counted, and that was too much. It dies with the exception's frames."""
    raise out_of_memory(place, nbytes, allocated=place.allocated - nbytes)


def reserve(place: Place, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise before an op allocates more than the device has left.

    The size comes from running the op on the meta device, which computes shapes only.
    """
    if place.limit is None:
        return
    nbytes = shape_of_result(func, args, kwargs)
    if nbytes is not None and place.allocated + nbytes > place.limit:
        raise out_of_memory(place, nbytes)
