"""Pinned tensors whose copies are queued on a device: their memory must stay until the device has read it.

torch's own pinned memory does; memory that somebody else has pinned (`cudaHostRegister`) is freed with its tensor.

Source: aten/src/ATen/native/cuda/Copy.cu, aten/src/ATen/core/CachingHostAllocator.h (torch 2.13).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from torch import Tensor

_waiting: deque[tuple[Any, list[Tensor]]] = deque()
_lock = threading.Lock()


def keep(event: Any, tensors: list[Tensor]) -> None:
    """Keep some tensors until an event behind their copies is done, or rather until the first call after that."""
    with _lock:
        while _waiting and _is_done(_waiting[0][0]):
            _waiting.popleft()
        _waiting.append((event, tensors))


def _is_done(event: Any) -> bool:
    try:
        return event.query()
    except Exception:  # noqa: BLE001 - its device is gone, with whatever was queued there: a rehearsal has ended
        return True
