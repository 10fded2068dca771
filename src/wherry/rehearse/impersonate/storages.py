"""torch.UntypedStorage: copies of a storage keep where it resides, so deepcopy, pickling, save and load do.

Reading a checkpoint ends in `storage.to(device)` or `.cuda()`, writing one begins with `storage.device` and `.cpu()`
(torch/serialization.py, torch/storage.py): with these four right, `torch.save` and `torch.load` are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import UntypedStorage
from torch.storage import _StorageBase

from wherry.rehearse.absence import absent
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.mode import Mode
from wherry.rehearse.records import FLOATING, HOST, PINNED, write
from wherry.rehearse.surface import thread
from wherry.storage import Place

_Base = torch._C.StorageBase
_device = _Base.device.__get__  # type: ignore[attr-defined]


def _place(storage: UntypedStorage) -> Place:
    place = storage._wherry_record[0]  # type: ignore[attr-defined]
    return HOST if place is FLOATING else place


def _copy_at(storage: UntypedStorage, place: Place) -> UntypedStorage:
    copy = UntypedStorage(storage.nbytes())
    copy.copy_(storage)
    record = storage._wherry_record  # type: ignore[attr-defined]
    write(copy, place, record[1], record[2])
    mode = thread.mode
    if mode is not None:
        source = _place(storage)
        if source is not place:
            mode.session.moved_bytes(source, place, storage.nbytes())
    return copy


def device(self: UntypedStorage) -> torch.device:
    if thread.mode is None:
        return _device(self)
    place = _place(self)
    return _device(self) if place.index is None else place.device


def _check_recognized(mode: Mode, device_type: str) -> None:
    """Builds without MPS have no storages for it, and say so before they look for a device (torch/csrc/Storage.cpp)."""
    if device_type == "mps" and mode.session.backend.device_type != "mps":
        raise RuntimeError("torch.UntypedStorage(): Storage device not recognized: mps")


def to(self: UntypedStorage, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
    mode = thread.mode
    if mode is None:
        return _StorageBase.to(self, device=device, non_blocking=non_blocking)
    _check_recognized(mode, torch.device(device).type)
    place = mode.session.resolve(device, moving=True)
    here = _place(self)
    if place is here or (place is HOST and here is PINNED):
        return self
    return _copy_at(self, place)


def _moving_method(device_type: str) -> Any:
    original = getattr(_StorageBase, device_type)

    def move(self: UntypedStorage, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        mode = thread.mode
        if mode is None:
            return original(self) if device_type == "mps" else original(self, device, non_blocking)
        if mode.session.backend.device_type != device_type:
            _check_recognized(mode, device_type)
            raise absent(device_type)
        return to(self, device=torch.device(device_type) if device is None else device)

    return functools.wraps(original)(move)


def cpu(self: UntypedStorage) -> UntypedStorage:
    if thread.mode is None:
        return _StorageBase.cpu(self)
    return self if _place(self).index is None else _copy_at(self, HOST)


def clone(self: UntypedStorage) -> UntypedStorage:
    if thread.mode is None:
        return _StorageBase.clone(self)
    return _copy_at(self, HOST if _place(self) is PINNED else _place(self))


def is_cuda(self: UntypedStorage) -> bool:
    return self.device.type == "cuda"


def is_pinned(self: UntypedStorage, *args: Any, **kwargs: Any) -> bool:
    if thread.mode is None:
        return _StorageBase.is_pinned(self, *args, **kwargs)
    return self._wherry_record[0] is PINNED  # type: ignore[attr-defined]


def pin_memory(self: UntypedStorage, *args: Any, **kwargs: Any) -> UntypedStorage:
    mode = thread.mode
    if mode is None:
        return _StorageBase.pin_memory(self, *args, **kwargs)
    return _copy_at(self, mode.session.pinned(_place(self)))


def share_memory_(self: UntypedStorage, *args: Any, **kwargs: Any) -> UntypedStorage:
    if thread.mode is not None and _place(self).index is not None:
        return self
    return _share_memory(self, *args, **kwargs)


_share_memory = UntypedStorage.share_memory_


def resize_(self: UntypedStorage, size: int) -> UntypedStorage:
    """Grow or shrink a storage in place (FSDP frees parameters so): the device's memory follows."""
    out = _Base.resize_(self, size)
    if thread.mode is not None:
        record = self._wherry_record  # type: ignore[attr-defined]
        if record[0].index is not None:
            write(self, *record[:3])
    return out


def patches() -> Iterator[Patch]:
    """Names of torch.UntypedStorage; `TypedStorage` asks its untyped one."""
    yield Patch(UntypedStorage, "device", property(device))
    yield Patch(UntypedStorage, "is_cuda", property(is_cuda))
    for name, method in (
        ("to", to),
        ("cpu", cpu),
        ("clone", clone),
        ("is_pinned", is_pinned),
        ("pin_memory", pin_memory),
        ("share_memory_", share_memory_),
        ("resize_", resize_),
    ):
        yield Patch(UntypedStorage, name, functools.wraps(getattr(UntypedStorage, name))(method))
    for device_type in ("cuda", "mps"):
        yield Patch(UntypedStorage, device_type, _moving_method(device_type))
