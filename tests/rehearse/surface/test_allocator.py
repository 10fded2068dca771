"""Memory statistics are those of CUDA's own caching allocator.

What is expected here was said by the allocator of the CUDA build of torch 2.13.0, run on stand-in libraries without a GPU: the
same requests in the same order.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from wherry.rehearse import Rehearsal, rehearse
from wherry.units import GIB, MIB

pytestmark = pytest.mark.alone  # counts every byte of a device

HUGE = 8 * 1024 * GIB
"""No host has that much: a request that reached the host's memory would end otherwise than expected."""


@pytest.fixture
def on() -> Iterator[Rehearsal]:
    gc.collect()
    with rehearse("cuda", count=2) as rehearsal:
        yield rehearsal


def nbytes(size: int, device: str = "cuda") -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


# Requests one after another; after each: allocated, reserved, segments, allocations, bytes and number of free parts.
STEPS = (
    (1, 512, 2097152, 1, 1, 2096640, 1),
    (0, 512, 2097152, 1, 1, 2096640, 1),
    (1_000_000, 1000960, 2097152, 1, 2, 1096192, 1),
    (1 * MIB, 2049536, 2097152, 1, 3, 47616, 1),
    (1 * MIB + 1, 3098624, 23068672, 2, 4, 19970048, 2),
    (5 * MIB, 8341504, 23068672, 2, 5, 14727168, 2),
    (12 * MIB, 20924416, 23068672, 2, 6, 2144256, 2),
    (9 * MIB, 30361600, 44040192, 3, 7, 13678592, 3),
    (9 * MIB, 39798784, 44040192, 3, 8, 4241408, 3),
)
COLUMNS = (
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "segment.all.current",
    "allocation.all.current",
    "inactive_split_bytes.all.current",
    "inactive_split.all.current",
)


def test_blocks_and_segments_are_those_of_the_real_allocator(on: Rehearsal) -> None:
    held: list[Tensor] = []
    seen = []

    for step in STEPS:
        held.append(nbytes(step[0]))
        stats = torch.cuda.memory_stats()
        seen.append((step[0], *(stats[column] for column in COLUMNS)))

    assert tuple(seen) == STEPS


def test_what_is_freed_stays_reserved_until_the_cache_is_emptied(on: Rehearsal) -> None:
    held = [nbytes(size) for size, *_ in STEPS]
    full = torch.cuda.memory_reserved()

    del held[-1]
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (30361600, full)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == full  # the other half of that segment is in use
    held.clear()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (0, full)
    torch.cuda.empty_cache()
    assert (torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved()) == (0, full)
    stats = torch.cuda.memory_stats()
    assert (stats["num_device_alloc"], stats["num_device_free"], stats["segment.all.allocated"]) == (3, 3, 3)

    torch.cuda.reset_peak_memory_stats()
    assert (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) == (0, 0)
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0


def test_a_peak_nobody_looked_at_stays_reserved(on: Rehearsal) -> None:
    for _ in range(3):
        nbytes(40 * MIB)

    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.memory_reserved() == 40 * MIB
    assert torch.cuda.mem_get_info()[0] == on.profile.total_memory - 40 * MIB


def test_statistics_have_the_keys_of_the_real_ones(on: Rehearsal) -> None:
    nbytes(1)
    stats = torch.cuda.memory_stats()

    assert len(stats) == 123
    assert list(stats) == sorted(stats)
    assert {"num_ooms", "max_split_size", "requested_bytes.small_pool.freed", "oversize_segments.peak"} <= stats.keys()


def test_nothing_is_told_before_the_first_use(on: Rehearsal) -> None:
    assert torch.cuda.memory_stats() == {}
    assert torch.cuda.memory_allocated(5) == 0
    assert not torch.cuda.is_initialized()

    nbytes(1)

    assert torch.cuda.is_initialized()
    with pytest.raises(RuntimeError, match="Invalid device argument \x05: did you call init?"):
        torch.cuda.memory_allocated(5)


def test_summary_is_torchs_own_table(on: Rehearsal) -> None:
    held = nbytes(5 * MIB)
    summary = torch.cuda.memory_summary(abbreviated=True)

    assert "PyTorch CUDA memory summary, device ID 0" in summary
    assert "| Allocated memory      |   5120 KiB |   5120 KiB |   5120 KiB |      0 B   |" in summary
    assert "| GPU reserved memory   |  20480 KiB |" in summary
    del held


def test_snapshot_lists_segments_and_blocks(on: Rehearsal) -> None:
    held = nbytes(4_000_000)
    (segment,) = torch.cuda.memory_snapshot()

    assert (segment["total_size"], segment["allocated_size"], segment["segment_type"]) == (20971520, 4000256, "large")
    assert [(block["size"], block["state"]) for block in segment["blocks"]] == [
        (4000256, "active_allocated"),
        (16971264, "inactive"),
    ]
    del held


def test_each_device_has_memory_of_its_own(on: Rehearsal) -> None:
    held = nbytes(5 * MIB, "cuda:1")

    assert (torch.cuda.memory_reserved(0), torch.cuda.memory_reserved(1)) == (0, 20 * MIB)
    del held


def test_asking_keeps_no_storage_alive(on: Rehearsal) -> None:
    held = nbytes(5 * MIB)
    torch.cuda.memory_stats()

    del held

    assert torch.cuda.memory_allocated() == 0


# Full


def test_a_request_that_no_such_device_could_hold_is_refused_without_a_limit(on: Rehearsal) -> None:
    with pytest.raises(
        torch.OutOfMemoryError, match=r"Tried to allocate 8192.00 GiB. GPU 0 has a total capacity of 23.99 GiB"
    ):
        nbytes(HUGE)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory. Tried to allocate more than 1EB memory."):
        torch.empty(1 << 60, device="cuda")


OPS = {
    "outer": lambda x: x[:, None] * x,
    "matmul": lambda x: x[:, None] @ x[None],
    "repeat": lambda x: x.repeat(1 << 23),
    "interpolate": lambda x: torch.nn.functional.interpolate(x.view(1, 1, -1), scale_factor=1e7),
    "pad": lambda x: torch.nn.functional.pad(x, (0, 1 << 43)),
    "cat": lambda x: torch.cat([x.expand(1 << 23, -1)] * 2),
    "clone": lambda x: x.expand(1 << 23, -1).clone(),
    "cdist": lambda x: torch.cdist(x[:, None], x[:, None]),
    "movement": lambda x: x.cpu().expand(1 << 23, -1).cuda(),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_is_refused_before_the_host_allocates(name: str) -> None:
    with rehearse("cuda", memory="64MiB"):
        x = torch.zeros(1 << 20, device="cuda")

        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory. Tried to allocate"):
            OPS[name](x)


def test_ops_that_fit_are_let_through() -> None:
    with rehearse("cuda", memory="64MiB"):
        x = torch.zeros(1 << 20, device="cuda")

        for _ in range(50):
            y = (x * 2 + 1).view(1024, 1024) @ x.view(1024, 1024)
            y.add_(1)

        assert y.sum().item() == 1 << 20


def test_error_says_the_segment_it_asked_for_and_what_is_left() -> None:
    with rehearse("cuda", memory="80GiB"):
        torch.cuda.set_per_process_memory_fraction(0.5)

        with pytest.raises(torch.OutOfMemoryError) as caught:
            nbytes(60 * GIB)

    assert re.match(
        r"CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which [\d.]+ GiB is free. "
        r"40.00 GiB allowed; Of the allocated memory .* is allocated by PyTorch, and .* is reserved by PyTorch but unallocated.",
        str(caught.value),
    )


def test_fraction_is_checked_and_told() -> None:
    with rehearse("cuda", memory="1GiB"):
        torch.cuda.set_per_process_memory_fraction(0.25)
        assert torch.cuda.get_per_process_memory_fraction() == 0.25
        held = nbytes(200 * MIB)
        with pytest.raises(torch.OutOfMemoryError):
            held + held
        with pytest.raises(ValueError, match="Invalid fraction value: 2.0. Allowed range: 0~1"):
            torch.cuda.set_per_process_memory_fraction(2.0)

    with rehearse("cuda", memory="1GiB"):
        assert torch.cuda.get_per_process_memory_fraction() == 1.0


def test_a_program_that_frees_and_goes_on_after_running_out() -> None:
    with rehearse("cuda", memory="64MiB"):
        held = nbytes(40 * MIB)
        with pytest.raises(torch.OutOfMemoryError):
            nbytes(40 * MIB)
        del held

        assert nbytes(40 * MIB).device.type == "cuda"
        assert torch.cuda.memory_stats()["num_ooms"] == 1


# Macs


def test_mac_counts_in_heaps() -> None:
    gc.collect()  # what earlier tests left behind is on the device still

    with rehearse("mps") as rehearsal:
        held = torch.empty(5 * MIB, dtype=torch.uint8, device="mps")

        assert torch.mps.current_allocated_memory() == 5 * MIB
        assert torch.mps.driver_allocated_memory() == 32 * MIB
        assert torch.mps.recommended_max_memory() == rehearsal.profile.total_memory
        del held


# A named device


@pytest.mark.parametrize(
    ("device", "profile", "name"),
    [
        ("cuda", "t4", "Tesla T4"),
        ("cuda", "h100", "NVIDIA H100 80GB HBM3"),
        ("rocm", "mi250x", "AMD Instinct MI250X"),
        ("xpu", "a770", "Intel(R) Arc(TM) A770 Graphics"),
    ],
)
def test_profile_decides_what_the_device_says(device: str, profile: str, name: str) -> None:
    with rehearse(device, profile=profile) as rehearsal:
        namespace = torch.get_device_module(rehearsal.device)
        properties = namespace.get_device_properties()

        assert namespace.get_device_name() == properties.name == name
        assert properties.total_memory == namespace.mem_get_info()[1] == rehearsal.memory
        assert name in repr(properties)


def test_profile_decides_what_fits() -> None:
    with (
        rehearse("cuda", profile="rtx3060"),
        pytest.raises(torch.OutOfMemoryError, match="total capacity of 12.00 GiB"),
    ):
        nbytes(13 * GIB)


def test_profile_of_a_mac() -> None:
    with rehearse("mps", profile="m1"):
        if hasattr(torch.backends.mps, "get_name"):
            assert (torch.backends.mps.get_name(), torch.backends.mps.get_core_count()) == ("Apple M1", 8)
        assert torch.mps.recommended_max_memory() == 11_453_246_122


def test_capabilities_follow_the_profile() -> None:
    with rehearse("cuda", profile="t4"):
        assert torch.cuda.get_device_capability() == (7, 5)
        assert not torch.cuda.is_tf32_supported()
    with rehearse("cuda", profile="a100-40gb"):
        assert torch.cuda.get_device_capability() == (8, 0)
        assert torch.cuda.is_tf32_supported()


@pytest.mark.slow
def test_asking_disturbs_no_thread_that_builds_a_tuple() -> None:
    """A tuple that is being built may have one owner only; the collector's list of objects is another."""
    wrong: list[BaseException] = []
    done = threading.Event()

    def build() -> None:
        try:
            while not done.is_set():
                tuple(number for number in range(50))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=build) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        with rehearse("cuda"):
            for _ in range(30):
                kept = torch.ones(3, device="cuda")
                torch.cuda.memory_stats()
                del kept
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)

    assert wrong == []
