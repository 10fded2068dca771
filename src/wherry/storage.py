"""A storage: where it resides, and who wrote that down.

A tensor lives where its storage lives. During a rehearsal every storage really is host memory; the device it *stands
for* is written on its `torch.UntypedStorage`, whose Python object PyTorch keeps for the life of the storage
(tests/torch_contract/test_storage.py). Views, `.data`, detached aliases, saved tensors and swapped parameters share the
storage and so share the record, by construction.

A record is `(place, code, instruction)`: the `Place`, and the code object and instruction offset of the user's line that
made the storage; on a device also its bytes (`Resident`). A code object is kept instead of a frame so that nothing of
the program stays alive. A storage without one resides on the host: the class answers `UNMARKED` for it while a rehearsal is on.

Tensors without a storage of their own (sparse, nested, functorch wrappers) live where their parts live: `residency`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType

    import torch

ATTRIBUTE = "_wherry_record"
"""The attribute of an `UntypedStorage` that holds its record. Spelled out where it is read often."""


OPAQUE_ATTRIBUTE = "_wherry_place"
"""The attribute of a tensor whose parts cannot be had (MKLDNN) that holds its `Place`."""


class Place:
    """One device of this process, or the host: there is exactly one object for each, so places compare with `is`.

    Attributes:
        device: the `torch.device` a tensor here answers with; always with an index, except on the host.
        name, type, index: its parts: "cuda:0", "cuda", 0.
        pinned: whether this is page-locked host memory.
        allocated: bytes of the storages here now; `peak`: the most there ever were.
        allocations: how many storages were ever made here.
        limit: the most bytes there may be, or None.
        ceiling: the smaller of peak and limit; whoever adds bytes beyond it calls `rise`.
        lacks: the dtypes that no tensor here can have, each with the class and the text of what making one raises.
        unable: the dtypes that no kernel here computes in, with what one raises that would.
    """

    __slots__ = (
        "_limit",
        "allocated",
        "allocations",
        "ceiling",
        "device",
        "index",
        "lacks",
        "name",
        "peak",
        "pinned",
        "type",
        "unable",
    )

    def __init__(self, device: torch.device, *, pinned: bool = False) -> None:
        self.device = device
        self.name = str(device)
        self.type = device.type
        self.index = device.index
        self.pinned = pinned
        self.allocated = 0
        self.allocations = 0
        self.peak = 0
        self.ceiling = 0
        self.lacks: Mapping[torch.dtype, tuple[type[Exception], str]] = {}
        self.unable: Mapping[torch.dtype, tuple[type[Exception], str]] = {}
        self._limit: int | None = None

    def __repr__(self) -> str:
        return f"<Place {self.name}{' pinned' if self.pinned else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Two processes that rehearse one device mean the same place.
        return (_restore, (self.name, self.pinned))

    @property
    def limit(self) -> int | None:
        return self._limit

    @limit.setter
    def limit(self, nbytes: int | None) -> None:
        self._limit = nbytes
        self._set_ceiling()

    def reset_peak(self) -> None:
        """Forget the most bytes there ever were: from now on it is what is here now."""
        self.peak = self.allocated
        self._set_ceiling()

    def rise(self) -> bool:
        """More is allocated than the ceiling. Note a new peak, and say whether the limit is passed."""
        if self.allocated > self.peak:
            self.peak = self.allocated
            self._set_ceiling()
        return self._limit is not None and self.allocated > self._limit

    def _set_ceiling(self) -> None:
        self.ceiling = self.peak if self._limit is None else min(self.peak, self._limit)


class Resident(tuple[Any, ...]):
    """The record of a storage on a device: `(place, code, instruction, nbytes)`.

    Its death is the storage's death, which is how the memory of a virtual device is known without a registry. A weak
    reference with a callback in C would cost less alone, but more in place (benchmarks/dispatch_overhead.py): deaths
    would have to be settled at every new peak. Adding and subtracting are runs of bytecode without a call, which the
    interpreter lock does not interrupt.
    """

    __slots__ = ()

    def __del__(self) -> None:
        self[0].allocated -= self[3]


_places: dict[tuple[str, bool], Place] = {}
_lock = threading.Lock()


def place_of(device: torch.device, *, pinned: bool = False) -> Place:
    """The one `Place` of a device. Give accelerators with an index."""
    key = (str(device), pinned)
    place = _places.get(key)
    if place is None:
        with _lock:
            place = _places.setdefault(key, Place(device, pinned=pinned))
    return place


def _restore(name: str, pinned: bool) -> Place:
    import torch

    return place_of(torch.device(name), pinned=pinned)


def host() -> Place:
    """Where pageable host memory resides."""
    import torch

    return place_of(torch.device("cpu"))


def unmarked() -> tuple[Place, CodeType | None, int]:
    """The record of a storage that has none: on the host, made we do not know where."""
    return (host(), None, -1)
