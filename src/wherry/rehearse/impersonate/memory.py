"""The memory statistics of torch.cuda, torch.xpu, torch.mps and torch.accelerator: the C functions their Python code ends in.

torch's own Python does the rest: names that are deprecated, checks of arguments, `memory_summary`'s table.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from wherry.rehearse import accounting
from wherry.rehearse.absence import invalid_ordinal
from wherry.rehearse.impersonate.stand_ins import Virtual, answer, nothing
from wherry.rehearse.state import has_started, state_of

if TYPE_CHECKING:
    from wherry.rehearse.allocator import Allocator
    from wherry.rehearse.session import Rehearsal
    from wherry.storage import Place


def total_memory(session: Rehearsal) -> int:
    """Bytes of each device."""
    return session.memory or session.profile.total_memory


def _place(session: Rehearsal, index: int) -> Place:
    """A device by its index, as the allocator's functions check it (c10/cuda/CUDACachingAllocator.cpp).

    The real text has the index as a byte, because `c10::DeviceIndex` is one.
    """
    if not 0 <= index < session.count:
        raise RuntimeError(f"Invalid device argument {chr(index & 0xFF)}: did you call init?")
    return session.places[index]


def _allocator(session: Rehearsal, index: int) -> Allocator:
    return accounting.allocator_of(_place(session, index))


def _current(session: Rehearsal) -> Place:
    return session.places[session.current_index]


def memory_stats(session: Rehearsal, index: int) -> dict[str, Any]:
    return _allocator(session, index).statistics()


def xpu_memory_stats(session: Rehearsal, index: int) -> dict[str, Any]:
    """XPU's allocator keeps fewer statistics (torch/xpu/memory.py, memory_stats)."""
    kept = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
    return {name: value for name, value in memory_stats(session, index).items() if name in kept}


def device_stats(session: Rehearsal, index: int) -> dict[str, Any]:
    """`torch._C._accelerator_getDeviceStats`, the statistics every kind of device has."""
    kept = memory_stats(session, index)
    return {name: value for name, value in kept.items() if name not in ("num_oom_rejections", "num_sync_all_streams")}


def reset_peak(session: Rehearsal, index: int) -> None:
    _allocator(session, index).reset_peaks()


def reset_accumulated(session: Rehearsal, index: int) -> None:
    _allocator(session, index).reset_totals()


def empty_cache(session: Rehearsal, *_: Any) -> None:
    for place in session.places:
        accounting.allocator_of(place).empty_cache()


def snapshot(session: Rehearsal, *_: Any) -> dict[str, Any]:
    """`torch._C._cuda_memorySnapshot`: segments, without the history of how they came to be."""
    segments = [s for place in session.places for s in accounting.allocator_of(place).snapshot()]
    traces: list[list[Any]] = [[] for _ in session.places]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0}
    return {"segments": segments, "device_traces": traces, "allocator_settings": settings, "external_annotations": []}


def fraction(session: Rehearsal, index: int) -> float:
    return accounting.fraction(_place(session, index))


def set_fraction(session: Rehearsal, part: float, index: int) -> None:
    from wherry.rehearse.limited import LimitedMode

    accounting.set_fraction(session, _place(session, index), part)
    for mode in session._modes:
        mode.__class__ = LimitedMode  # ops look ahead from now on


def free_and_total(session: Rehearsal, index: int) -> tuple[int, int]:
    """What the driver says: free is what no segment holds."""
    if not 0 <= index < session.count:
        raise invalid_ordinal(session.backend)
    allocator = accounting.allocator_of(session.places[index])
    allocator.update(again=False)
    total = total_memory(session)
    return (max(total - max(allocator.reserved, session.places[index].allocated), 0), total)


def memory_used(session: Rehearsal, device: Any = None) -> int:
    """`torch.cuda.device_memory_used`: by this process, which is the only one on a virtual device."""
    from wherry.rehearse.impersonate.devices import index_of

    free, total = free_and_total(session, index_of(session, device))
    return total - free


# -- page-locked host memory, and pools, which are bookkeeping only

_HOST_STATS = ("allocations", "allocated_bytes", "active_requests", "active_bytes")


def host_memory_stats(session: Rehearsal) -> dict[str, Any]:
    """Nothing is counted: pinned memory is ordinary memory here."""
    zero = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    times = {"total": 0, "max": 0, "min": 0, "count": 0, "avg": 0}
    counts = {"num_host_alloc": 0, "num_host_free": 0}
    return (
        {name: dict(zero) for name in _HOST_STATS}
        | counts
        | {n: dict(times) for n in ("host_alloc_time", "host_free_time")}
    )


class MemPool:
    """torch.cuda.MemPool and torch.xpu.MemPool: tensors made in it are counted with all others."""

    _numbers = itertools.count(1)

    def __init__(self, allocator: Any = None, *_: Any, **__: Any) -> None:
        self._id = (0, next(self._numbers))
        self._allocator = allocator

    @property
    def id(self) -> tuple[int, int]:
        return self._id

    @property
    def allocator(self) -> Any:
        return self._allocator

    def use_count(self) -> int:
        return 1

    def snapshot(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []


class MemPoolContext:
    """torch.cuda.MemPoolContext, up to torch 2.7."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    @staticmethod
    def active_pool() -> None:
        return None


def is_enabled(session: Rehearsal) -> bool:
    return bool(state_of(session).settings.get("caching allocator", True))


def enable(session: Rehearsal, value: bool) -> None:
    state_of(session).settings["caching allocator"] = value


CUDA: dict[str, Virtual] = {
    "_cuda_memoryStats": memory_stats,
    "_cuda_resetPeakMemoryStats": reset_peak,
    "_cuda_resetAccumulatedMemoryStats": reset_accumulated,
    "_cuda_emptyCache": empty_cache,
    "_cuda_memorySnapshot": snapshot,
    "_cuda_getMemoryFraction": fraction,
    "_cuda_setMemoryFraction": set_fraction,
    "_cuda_ipc_collect": nothing,
    "_cuda_hostMemoryStats": host_memory_stats,
    "_cuda_resetPeakHostMemoryStats": nothing,
    "_cuda_resetAccumulatedHostMemoryStats": nothing,
    "_host_emptyCache": nothing,
    "_cuda_getAllocatorBackend": answer("native"),
    "_cuda_cudaCachingAllocator_is_enabled": is_enabled,
    "_cuda_cudaCachingAllocator_enable": enable,
    "_cuda_record_memory_history": nothing,
    "_cuda_record_memory_history_legacy": nothing,
    "_cuda_isHistoryEnabled": answer(False),
    "_cuda_setMemoryMetadata": nothing,
    "_cuda_getMemoryMetadata": answer(""),
}
"""The allocator's C functions under torch.cuda. Their arguments were checked by torch's Python."""

XPU: dict[str, Virtual] = {
    "_xpu_memoryStats": xpu_memory_stats,
    "_xpu_resetPeakMemoryStats": reset_peak,
    "_xpu_resetAccumulatedMemoryStats": reset_accumulated,
    "_xpu_emptyCache": empty_cache,
    "_xpu_memorySnapshot": snapshot,
    "_xpu_getMemoryFraction": fraction,
    "_xpu_setMemoryFraction": set_fraction,
    "_xpu_getMemoryInfo": free_and_total,
    "_xpu_recordMemoryHistory": nothing,
}

ACCELERATOR: dict[str, Virtual] = {
    "_accelerator_isAllocatorInitialized": has_started,
    "_accelerator_emptyCache": empty_cache,
    "_accelerator_emptyHostCache": nothing,
    "_accelerator_getDeviceStats": device_stats,
    "_accelerator_resetPeakStats": reset_peak,
    "_accelerator_resetAccumulatedStats": reset_accumulated,
    "_accelerator_getMemoryInfo": free_and_total,
}


def _driver_memory(session: Rehearsal) -> int:
    allocator = accounting.allocator_of(_current(session))
    allocator.update(again=False)
    return max(allocator.reserved, _current(session).allocated)


def _set_mps_fraction(session: Rehearsal, part: float) -> None:
    set_fraction(session, part, 0)


MPS: dict[str, Virtual] = {
    "_mps_emptyCache": empty_cache,
    "_mps_setMemoryFraction": _set_mps_fraction,
    "_mps_currentAllocatedMemory": lambda session: _current(session).allocated,
    "_mps_driverAllocatedMemory": _driver_memory,
    "_mps_recommendedMaxMemory": total_memory,
    "_mps_maxBufferLength": lambda session: total_memory(session) * 3 // 4,
}
