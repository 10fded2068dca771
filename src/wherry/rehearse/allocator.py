"""The caching allocator of a virtual device, as far as programs can see it.

A device's allocator asks the driver for large segments, hands out blocks of them, and keeps what is freed. So
`memory_reserved()` says more than `memory_allocated()`, and both are multiples of something. A rehearsal counts bytes as
storages come and go (`storage.Place`), which is all that happens while a program runs; segments are worked out here,
when somebody asks: the blocks that are alive now are put where the real allocator would have put them.

What that cannot know is the order of what came and went since the last question. A peak in between leaves a cached
segment of the size it must have had.

Sources: c10/core/CachingDeviceAllocator.h and c10/cuda/CUDACachingAllocator.cpp (torch 2.13), whose code c10/xpu shares;
tests/rehearse/surface/test_memory.py holds the numbers to those of the CUDA build's own allocator.
"""

from __future__ import annotations

import gc
import itertools
import operator
import threading
from dataclasses import dataclass, field
from typing import Any

from wherry.backends._backend import AllocatorSizes
from wherry.storage import Place, Resident


def rounded(nbytes: int, sizes: AllocatorSizes) -> int:
    """What a request takes: a multiple of the smallest block. Nothing takes nothing."""
    return -(-nbytes // sizes.block) * sizes.block


def segment_for(nbytes: int, sizes: AllocatorSizes) -> int:
    """What the driver is asked for when no segment has room for a block of `nbytes`."""
    if nbytes <= sizes.small:
        return sizes.small_segment
    if nbytes < sizes.large:
        return sizes.large_segment
    return -(-nbytes // sizes.segment_multiple) * sizes.segment_multiple


@dataclass(slots=True)
class Block:
    """A part of a segment, in use or free."""

    size: int
    owner: int | None  # the id of the record of the storage that uses it


@dataclass(slots=True)
class Segment:
    """Memory that was asked of the driver."""

    size: int
    small: bool
    blocks: list[Block] = field(default_factory=list)

    def release(self, gone: set[int]) -> None:
        """Free the blocks of owners that are gone, and join free neighbours."""
        joined: list[Block] = []
        for block in self.blocks:
            if block.owner in gone:
                block = Block(block.size, None)
            if joined and joined[-1].owner is None and block.owner is None:
                joined[-1].size += block.size
            else:
                joined.append(block)
        self.blocks = joined

    @property
    def is_free(self) -> bool:
        return all(block.owner is None for block in self.blocks)


def residents(place: Place) -> list[tuple[int, int]]:
    """Id and bytes of the record of each storage at a place, oldest first as far as the garbage collector knows.

    What the collector knows is looked through in one call into C, during which no other thread runs. One that is in the
    middle of building a tuple would find it shared with a list of ours, for which Python has no better word than
    SystemError. So nothing of ours may last longer than that call: an iterator that is not used up is in its own list.
    """
    with _looking:  # or a second thread would take the collector for switched off, and leave it so
        collects = gc.isenabled()
        gc.disable()  # else the two passes could differ
        try:
            known = itertools.chain.from_iterable(map(gc.get_objects, (2, 1, 0)))
            types = map(type, itertools.chain.from_iterable(map(gc.get_objects, (2, 1, 0))))
            are_records = map(operator.is_, types, itertools.repeat(Resident))
            no = itertools.repeat(False)
            parts = (known, are_records), (known, no), (are_records, no)
            found = list(itertools.chain.from_iterable(itertools.starmap(itertools.compress, parts)))
        finally:
            if collects:
                gc.enable()
    return [(id(record), record[3]) for record in found if record[0] is place]


_looking = threading.Lock()


class Allocator:
    """The segments of one device, kept between questions."""

    def __init__(self, place: Place, sizes: AllocatorSizes) -> None:
        self.place = place
        self.sizes = sizes
        self.segments: list[Segment] = []
        self.ooms = self.device_allocations = self.device_frees = 0
        self._used: dict[int, int] = {}
        self._seen_peak = 0  # the most bytes in use that the segments have room for
        self._floor = 0  # peaks up to this one are over and done with
        self.peaks: dict[str, int] = {}
        self.base: dict[str, int] = {}

    def update(self, *, again: bool = True) -> None:
        """Bring the segments up to date.

        Args:
            again: Whether to do so though nothing suggests that they have grown: only what is free in them may be old.
        """
        peak = self.place.peak
        allocated = self.place.allocated
        if not again and self._used and max(peak, allocated) <= self._seen_peak:
            return
        alive = dict(residents(self.place))
        gone = {key for key, nbytes in self._used.items() if alive.get(key) != nbytes}
        if gone:
            for segment in self.segments:
                segment.release(gone)
        for key, nbytes in alive.items():
            if key not in self._used or key in gone:
                self._put(key, nbytes)
        self._used = alive
        missing = peak - self.reserved if peak > max(self._floor, self._seen_peak) else 0
        if missing > 0:  # what was there at the peak, and is not any more
            size = segment_for(missing, self.sizes)
            self.segments.append(Segment(size, small=missing <= self.sizes.small, blocks=[Block(size, None)]))
            self.device_allocations += 1
        self._seen_peak = max(self._seen_peak, peak, allocated)
        self._note_peaks()

    def _put(self, owner: int, nbytes: int) -> None:
        size = rounded(nbytes, self.sizes)
        if size == 0:
            return
        small = size <= self.sizes.small
        best: tuple[Segment, int] | None = None
        for segment in self.segments:
            if segment.small is not small:
                continue
            for position, block in enumerate(segment.blocks):
                fits = block.owner is None and block.size >= size
                if fits and (best is None or block.size < best[0].blocks[best[1]].size):
                    best = (segment, position)
        if best is None:
            fresh = Segment(segment_for(size, self.sizes), small)
            fresh.blocks.append(Block(fresh.size, None))
            self.segments.append(fresh)
            self.device_allocations += 1
            best = (fresh, 0)
        segment, position = best
        rest = segment.blocks[position].size - size
        if rest >= self.sizes.block if small else rest > self.sizes.small:
            segment.blocks[position : position + 1] = [Block(size, owner), Block(rest, None)]
        else:
            segment.blocks[position] = Block(size + rest, owner)

    def empty_cache(self) -> None:
        """Give segments that nothing uses back to the driver."""
        self.update()
        kept = [segment for segment in self.segments if not segment.is_free]
        self.device_frees += len(self.segments) - len(kept)
        self.segments = kept
        self._floor = self.place.peak
        self._seen_peak = self.place.allocated

    @property
    def reserved(self) -> int:
        """Bytes asked of the driver and not given back, as of the last update."""
        return sum(segment.size for segment in self.segments)

    def counters(self) -> dict[str, dict[str, int]]:
        """The statistics of now, each for "all", "small_pool" and "large_pool"."""
        names = ("allocation", "segment", "active", "inactive_split")
        names += tuple(f"{name}_bytes" for name in ("allocated", "reserved", "active", "inactive_split", "requested"))
        found = {name: {"all": 0, "small_pool": 0, "large_pool": 0} for name in names}

        def add(name: str, pool: str, amount: int) -> None:
            found[name]["all"] += amount
            found[name][pool] += amount

        for segment in self.segments:
            pool = "small_pool" if segment.small else "large_pool"
            add("segment", pool, 1)
            add("reserved_bytes", pool, segment.size)
            for block in segment.blocks:
                if block.owner is None:
                    if len(segment.blocks) > 1:
                        add("inactive_split", pool, 1)
                        add("inactive_split_bytes", pool, block.size)
                    continue
                for name in ("allocation", "active"):
                    add(name, pool, 1)
                for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
                    add(name, pool, block.size)
        return found

    def _note_peaks(self) -> None:
        for name, pools in self.counters().items():
            for pool, value in pools.items():
                key = f"{name}.{pool}"
                self.peaks[key] = max(self.peaks.get(key, 0), value)

    def reset_peaks(self) -> None:
        """`reset_peak_memory_stats`: the most there ever was is what is there now."""
        self.update()
        self.place.reset_peak()
        self.peaks.clear()
        self._floor = self.place.peak
        self._note_peaks()

    def reset_totals(self) -> None:
        """`reset_accumulated_memory_stats`: totals count from here on."""
        self.update()
        self.base = self._totals()
        self.ooms = 0

    def _totals(self) -> dict[str, int]:
        return {
            "allocation.all": self.place.allocations,
            "segment.all": self.device_allocations,
            "segment.all.freed": self.device_frees,
        }

    def statistics(self) -> dict[str, Any]:
        """The nested dictionary that `torch._C._cuda_memoryStats` gives.

        How many allocations there ever were is counted as the program runs. Other totals are what was seen when it asked.
        """
        self.update()
        totals, nested = self._totals(), dict[str, Any]()
        for name, pools in self.counters().items():
            nested[name] = {}
            for pool, current in pools.items():
                key = f"{name}.{pool}"
                peak = max(self.peaks.get(key, 0), current)
                if key in ("allocated_bytes.all", "active_bytes.all"):
                    peak = max(peak, self.place.peak)
                counted = {"active.all": "allocation.all"}.get(key, key)
                made = totals[counted] - self.base.get(counted, 0) if counted in totals else peak
                freed = max(made - current, 0)
                nested[name][pool] = {"current": current, "peak": peak, "allocated": made, "freed": freed}
        zero = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
        return nested | {
            "oversize_allocations": dict(zero),
            "oversize_segments": dict(zero),
            "max_split_size": -1,
            "num_alloc_retries": self.ooms,
            "num_ooms": self.ooms,
            "num_oom_rejections": 0,
            "num_sync_all_streams": 0,
            "num_device_alloc": totals["segment.all"] - self.base.get("segment.all", 0),
            "num_device_free": totals["segment.all.freed"] - self.base.get("segment.all.freed", 0),
        }

    def snapshot(self) -> list[dict[str, Any]]:
        """The segments as `torch.cuda.memory_snapshot()` lists them. Addresses are made up."""
        self.update()
        listed = []
        address = 0x7F00_0000_0000
        for segment in self.segments:
            blocks, at = [], address
            for block in segment.blocks:
                state = "inactive" if block.owner is None else "active_allocated"
                requested = 0 if block.owner is None else block.size
                blocks.append(
                    {"address": at, "size": block.size, "requested_size": requested, "state": state, "frames": []}
                )
                at += block.size
            used = sum(block.size for block in segment.blocks if block.owner is not None)
            listed.append(
                {
                    "device": self.place.index,
                    "address": address,
                    "total_size": segment.size,
                    "allocated_size": used,
                    "active_size": used,
                    "requested_size": used,
                    "stream": 0,
                    "segment_type": "small" if segment.small else "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": [],
                    "blocks": blocks,
                }
            )
            address += segment.size
        return listed
