"""Memory of a virtual device: how much there is, what programs are told of it, and the error when it is full.

Bytes are counted as records come and go (`records.write`, `storage.Resident`), in the blocks of the real allocator. What
does not fit is refused before the host allocates it: a factory or a movement where its size is known (`reserve`), any
other op on a device that has a limit (`foresee`), from shapes alone; and what slipped through, when its output is counted
(`check`). Without a limit only a single request is refused that no such device could ever hold.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherry.backends._backend import AllocatorSizes, Backend
from wherry.dispatch import OpOverload, shape_of_result, signature
from wherry.rehearse import records
from wherry.rehearse.allocator import Allocator, rounded, segment_for
from wherry.rehearse.state import state_of
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

_EXABYTE = 1 << 60  # one_exa_bytes in c10/cuda/CUDACachingAllocator.cpp
_LARGEST_ITEM = 16  # bytes of a complex128

_backends: dict[str, Backend] = {}  # device type -> the backend whose words are used
_capacities: dict[str, int] = {}  # device type -> bytes of the device that is rehearsed
_allocators: dict[Place, Allocator] = {}
_fractions: dict[Place, float] = {}
_active: dict[Place, int] = {}  # how many rehearsals of each place are on
_lock = threading.Lock()


# -- a rehearsal begins and ends


def begin(session: Rehearsal) -> list[int | None]:
    """Give the devices of a rehearsal their memory. Returns the limits to put back with `end`."""
    enable(session.backend, capacity=session.memory or session.profile.total_memory)
    before = [place.limit for place in session.places]
    with _lock:
        for place in session.places:
            if not _active.get(place):  # to the program, an earlier rehearsal was another process
                place.reset_peak()
                place.allocations = 0
                _allocators.pop(place, None)
                _fractions.pop(place, None)
            _active[place] = _active.get(place, 0) + 1
            if session.memory is not None:
                place.limit = session.memory
    state_of(session).started = False
    return before


def is_on(session: Rehearsal) -> bool:
    """Whether a rehearsal that has devices is on."""
    return any(_active.get(place) for place in session.places)


def end(session: Rehearsal, before: list[int | None]) -> None:
    """Put the limits back."""
    with _lock:
        for place, limit in zip(session.places, before, strict=True):
            _active[place] -= 1
            place.limit = limit


def enable(backend: Backend, *, capacity: int | None = None) -> None:
    """Let errors of this device type speak as `backend` does."""
    _backends[backend.device_type] = backend
    if capacity is None and backend.virtual is not None:
        capacity = backend.virtual.total_memory
    _capacities[backend.device_type] = capacity or 0
    records.over_limit = check


def sizes_of(place: Place) -> AllocatorSizes:
    """In what sizes the allocator of a device works."""
    virtual = _backends[place.type].virtual
    return AllocatorSizes() if virtual is None else virtual.allocator


def allocator_of(place: Place) -> Allocator:
    """The segments of a device."""
    found = _allocators.get(place)
    if found is None:
        with _lock:
            found = _allocators.setdefault(place, Allocator(place, sizes_of(place)))
    return found


# -- the limit


def fraction(place: Place) -> float:
    """What part of the device this process may use."""
    return _fractions.get(place, 1.0)


def set_fraction(session: Rehearsal, place: Place, part: float) -> None:
    """Let this process use a part of the device only, as `set_per_process_memory_fraction` does."""
    _fractions[place] = part
    total = session.memory or session.profile.total_memory
    place.limit = session.memory if part >= 1.0 else int(total * part)


def _format_size(nbytes: int) -> str:
    """c10's format_size (c10/core/CachingDeviceAllocator.h): two decimals and the largest fitting unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} bytes"


def out_of_memory(place: Place, nbytes: int, *, allocated: int | None = None) -> Exception:
    """What the device raises when `nbytes` more do not fit."""
    kind, text = _backends[place.type].wording.out_of_memory
    cls = torch.OutOfMemoryError if kind.endswith("OutOfMemoryError") else RuntimeError
    if nbytes > _EXABYTE:
        return cls(f"{text.partition(' out of memory')[0]} out of memory. Tried to allocate more than 1EB memory.")
    allocator = allocator_of(place)
    allocator.empty_cache()  # the real one gives back what it caches, and tries again, before it gives up
    allocator.ooms += 1
    allocated = place.allocated if allocated is None else allocated
    part, total = fraction(place), _capacities[place.type]
    allowed = place.limit if part < 1.0 and place.limit is not None else total
    reserved = min(max(allocator.reserved, allocated), total)
    if part < 1.0 and "is free. " in text:
        text = text.replace("is free. ", f"is free. {_format_size(allowed)} allowed; ", 1)
    message = text.format(
        tried_nbytes=nbytes,
        tried=_format_size(segment_for(rounded(nbytes, allocator.sizes), allocator.sizes)),
        index=place.index,
        total=_format_size(total),
        free=_format_size(total - reserved),
        allocated=_format_size(allocated),
        reserved=_format_size(reserved - allocated),
        other=_format_size(reserved - allocated),
        limit=_format_size(allowed),
    )
    return cls(message)


def check(place: Place, nbytes: int) -> None:
    """A storage of `nbytes` was just counted, and that was too much. It dies with the exception's frames."""
    raise out_of_memory(place, nbytes, allocated=place.allocated - nbytes)


def _room(place: Place) -> int:
    """How many bytes a request may have: what is left of a limit, or else what the device has."""
    if place.limit is None:
        return _capacities.get(place.type, _EXABYTE)
    return place.limit - place.allocated


def reserve(place: Place, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise before an op allocates more than the device has.

    The size comes from running the op on the meta device, which computes shapes only, and which is spared where the
    arguments cannot make anything so large.
    """
    if place.index is None:
        return
    room = _room(place)
    if at_most(args, kwargs) <= room:
        return
    nbytes = shape_of_result(func, args, kwargs)
    if nbytes is not None and nbytes > room:
        raise out_of_memory(place, nbytes)


def foresee(session: Rehearsal, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`reserve` for an op that is not a factory: it allocates where its operands reside.

    Not a view, which allocates nothing, nor an op that is told a device: where it goes is where room is asked for.
    """
    if not session.places or not any(place.limit is not None for place in session.places):
        return
    if not signature(func).fresh or kwargs.get("device") is not None:
        return
    room = min(_room(place) for place in session.places if place.limit is not None)
    if at_most(args, kwargs) <= room:
        return
    for operand in records.operands_of(func, args, kwargs):
        if operand.output:
            return  # in place, or into an `out` that is there
        if operand.place.index is not None:
            if operand.place.limit is not None:
                reserve(operand.place, func, args, kwargs)
            return


def at_most(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes that the result of a call cannot exceed, whatever the op: the product of all sizes among its arguments.

    An op makes an element for each combination of elements of its operands at most (an outer product), times what
    numbers ask for (repeat, interpolate, eye). It is far too much for most ops, and cheap.
    """
    bound = _LARGEST_ITEM
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            bound *= max(value.numel(), 1)
        elif isinstance(value, list | tuple):
            if value and isinstance(value[0], Tensor):
                bound *= max(sum(t.numel() for t in value if isinstance(t, Tensor)), 1)
            else:
                for item in value:
                    bound *= _factor(item)
        else:
            bound *= _factor(value)
    return bound


def _factor(value: object) -> int:
    """By how much a number can multiply the elements of a result. Infinite ones and NaN size nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e30 < value < 1e30:
        return 1
    return int(abs(value)) + 1
