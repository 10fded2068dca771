"""Memory of a virtual device: counted in blocks of 512 bytes as the real allocator does, and full before the host allocates."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from wherry.rehearse import Rehearsal, rehearse
from wherry.units import GIB, MIB

pytestmark = pytest.mark.alone  # counts every byte of a device

IMPOSSIBLE = 2**43
"""Bytes that no host has: eight TiB. A request that reached the host's memory would end otherwise than expected."""


@pytest.fixture
def small() -> Iterator[Rehearsal]:
    with rehearse("cuda", count=2, memory=1 * MIB) as rehearsal:
        gc.collect()
        yield rehearsal


def allocated(device: object = None) -> int:
    return torch.cuda.memory_allocated(device)


# Counting


def test_nothing_is_allocated_at_first(cuda: Rehearsal) -> None:
    gc.collect()

    assert allocated() == 0
    assert torch.cuda.memory_reserved() == 0


def test_allocated_bytes_are_those_of_the_storages(cuda: Rehearsal) -> None:
    gc.collect()
    before = allocated()

    x = torch.zeros(1024, device="cuda")
    y = torch.zeros(1024, dtype=torch.float16, device="cuda")
    view = x[10:]
    assert allocated() - before == 4096 + 2048

    del x
    assert allocated() - before == 4096 + 2048  # the view holds the storage
    del view, y
    assert allocated() == before


MADE: dict[str, Callable[[], object]] = {
    "factory": lambda: torch.zeros(256, device="cuda"),
    "movement": lambda: torch.zeros(256).cuda(),
    "op": lambda: torch.zeros(256, device="cuda") + 1,
    "clone": lambda: torch.zeros(256, device="cuda").clone(),
    "tensor": lambda: torch.tensor([0.0] * 256, device="cuda"),
    "parameter": lambda: nn.Parameter(torch.zeros(256, device="cuda")),
    "module": lambda: nn.Linear(256, 1, bias=False).cuda(),
    "like": lambda: torch.zeros_like(torch.zeros(256, device="cuda")),
    "new": lambda: torch.zeros(1, device="cuda").new_zeros(256),
    "cat": lambda: torch.cat([torch.zeros(128, device="cuda")] * 2),
    "data": lambda: torch.zeros(256, device="cuda").data,
    "set": lambda: torch.empty(0, device="cuda").set_(torch.zeros(256, device="cuda").untyped_storage()),
    "resize": lambda: torch.empty(0, device="cuda").resize_(256),
}


@pytest.mark.parametrize("name", MADE)
def test_whatever_is_made_counts_its_bytes_until_it_dies(name: str, cuda: Rehearsal) -> None:
    gc.collect()
    before = allocated()

    made = MADE[name]()
    gc.collect()
    during = allocated() - before
    del made
    gc.collect()

    assert during == 1024
    assert allocated() == before


def test_host_tensors_count_nothing(cuda: Rehearsal) -> None:
    before = allocated()

    held = [torch.zeros(256), torch.zeros(256, device="cuda").cpu(), torch.zeros(256).pin_memory()]
    gc.collect()

    assert len(held) == 3
    assert allocated() == before


def test_each_device_counts_its_own(cuda: Rehearsal) -> None:
    gc.collect()
    before = allocated(0), allocated(1)

    x = torch.zeros(256, device="cuda:1")
    y = x.to("cuda:0")

    assert (allocated(0) - before[0], allocated(1) - before[1]) == (1024, 1024)
    assert allocated("cuda:1") == allocated(torch.device("cuda", 1)) == allocated(1)
    del x, y


def test_peak_is_the_most_there_was(cuda: Rehearsal) -> None:
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    base = allocated()

    for _ in range(3):
        x = torch.zeros(1024, device="cuda")
        del x
    assert torch.cuda.max_memory_allocated() - base == 4096
    assert allocated() == base

    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == base


def test_peak_of_a_sum_holds_operands_and_result(cuda: Rehearsal) -> None:
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    base = allocated()

    x, y = torch.zeros(256, device="cuda"), torch.zeros(256, device="cuda")
    z = x + y
    x = y = z = None

    assert torch.cuda.max_memory_allocated() - base == 3 * 1024
    assert allocated() == base
    assert (x, y, z) == (None, None, None)


def test_replaced_data_frees_the_old(cuda: Rehearsal) -> None:
    p = nn.Parameter(torch.zeros(256, device="cuda"))
    gc.collect()
    before = allocated()

    p.data = torch.zeros(128, device="cuda")
    assert allocated() - before == -512

    p.data = p.data.cpu()
    assert allocated() - before == -1024


def test_storage_that_shrinks_gives_its_bytes_back(cuda: Rehearsal) -> None:
    x = torch.zeros(256, device="cuda")
    before = allocated()

    x.untyped_storage().resize_(0)
    assert allocated() - before == -1024
    x.untyped_storage().resize_(2048)
    assert allocated() - before == 1024


def test_backward_frees_what_it_saved(cuda: Rehearsal) -> None:
    gc.collect()
    x = torch.ones(256, device="cuda", requires_grad=True)
    before = allocated()

    y = x.exp().sum()
    held = allocated() - before
    y.backward()
    del y
    gc.collect()

    assert held == 1024 + 512  # exp keeps its result, and a block is the least there is
    assert allocated() - before == 1024  # the gradient


def test_statistics_agree_with_the_counts(cuda: Rehearsal) -> None:
    x = torch.zeros(256, device="cuda")
    stats = torch.cuda.memory_stats()

    assert stats["allocated_bytes.all.current"] == allocated()
    assert stats["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated()
    assert str(allocated()) in torch.cuda.memory_summary()
    torch.cuda.empty_cache()
    assert allocated() == stats["allocated_bytes.all.current"]
    del x


@pytest.mark.parametrize("name", ["cuda", "rocm", "xpu"])
def test_free_memory_is_what_is_left(name: str) -> None:
    with rehearse(name, memory="2GiB") as rehearsal:
        namespace = torch.get_device_module(rehearsal.device)
        x = torch.zeros(64 * MIB, device=rehearsal.device)
        free, total = namespace.mem_get_info()

        assert total == 2 * GIB == namespace.get_device_properties(0).total_memory
        assert free == total - namespace.memory_reserved()
        assert namespace.memory_reserved() >= namespace.memory_allocated() >= 256 * MIB
        assert torch.accelerator.memory_allocated() == namespace.memory_allocated()
        del x


def test_mac_counts_too() -> None:
    with rehearse("mps", memory="2GiB"):
        gc.collect()
        before = torch.mps.current_allocated_memory()
        x = torch.zeros(1024, device="mps")

        assert torch.mps.current_allocated_memory() - before == 4096
        assert torch.mps.recommended_max_memory() == 2 * GIB
        del x


def test_counts_start_again_in_the_next_rehearsal() -> None:
    with rehearse("cuda"):
        torch.zeros(4096, device="cuda")

    with rehearse("cuda"):
        gc.collect()
        assert torch.cuda.max_memory_allocated() == allocated()


# Limits

TOO_MUCH: dict[str, Callable[[], Tensor]] = {
    "empty": lambda: torch.empty(IMPOSSIBLE // 4, device="cuda"),
    "zeros": lambda: torch.zeros(IMPOSSIBLE // 4, device="cuda"),
    "full": lambda: torch.full((IMPOSSIBLE // 4,), 1.0, device="cuda"),
    "rand": lambda: torch.rand(IMPOSSIBLE // 4, device="cuda"),
    "arange": lambda: torch.arange(IMPOSSIBLE // 8, device="cuda"),
    "new_zeros": lambda: torch.zeros(1, device="cuda").new_zeros(IMPOSSIBLE // 4),
    "zeros_like": lambda: torch.zeros_like(torch.zeros(1, device="cuda").expand(IMPOSSIBLE // 4)),
    "movement": lambda: torch.zeros(1).expand(IMPOSSIBLE // 4).cuda(),
    "op": lambda: torch.zeros(1, device="cuda").expand(IMPOSSIBLE // 4) + 1,
    "outer": lambda: torch.zeros(1, device="cuda").expand(2**21)[:, None] * torch.zeros(1, device="cuda").expand(2**20),
    "clone": lambda: torch.zeros(1, device="cuda").expand(IMPOSSIBLE // 4).clone(),
    "repeat": lambda: torch.zeros(2, device="cuda").repeat(IMPOSSIBLE // 8),
    "matmul": lambda: torch.zeros(1, 1, device="cuda").expand(2**21, 1) @ torch.zeros(1, 1, device="cuda").expand(1, 2**20),
    "cat": lambda: torch.cat([torch.zeros(1, device="cuda").expand(IMPOSSIBLE // 8)] * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_request_beyond_the_limit_never_reaches_the_host(name: str, small: Rehearsal) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory. Tried to allocate"):
        TOO_MUCH[name]()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2**19, device="cuda"),
        lambda: torch.zeros(2**19).cuda(),
        lambda: torch.tensor([0.0] * 2**19, device="cuda"),
        lambda: nn.Linear(2**10, 2**10).cuda(),
        lambda: torch.zeros(2**10, 1, device="cuda") * torch.zeros(2**10, device="cuda"),
    ],
)
def test_more_than_fits_is_refused(make: Callable[[], object], small: Rehearsal) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        make()


def test_exactly_what_fits_is_given(small: Rehearsal) -> None:
    x = torch.zeros(MIB // 4, device="cuda")

    assert torch.cuda.mem_get_info() == (0, MIB)
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(1, device="cuda")
    del x
    torch.zeros(MIB // 4, device="cuda")


NEEDS_NO_ROOM: dict[str, Callable[[torch.Tensor], object]] = {
    "view": lambda x: x.view(-1),
    "transposed": lambda x: x.t(),
    "row": lambda x: x[0],
    "detached": lambda x: x.detach(),
    "expanded": lambda x: x.expand(3, 256, 640),
    "to the host": lambda x: x.cpu(),
    "like it, on the host": lambda x: torch.empty_like(x, device="cpu"),
    "in place": lambda x: x.add_(1),
    "sum": lambda x: x.sum(),
}


@pytest.mark.parametrize("name", NEEDS_NO_ROOM)
def test_what_allocates_nothing_there_needs_no_room(name: str, small: Rehearsal) -> None:
    x = torch.zeros(256, 640, device="cuda")  # more than half of the device

    assert NEEDS_NO_ROOM[name](x) is not None
    with pytest.raises(torch.OutOfMemoryError):  # the twin: a copy of it does not fit
        x.clone()


def test_memory_is_there_again_after_it_ran_out(small: Rehearsal) -> None:
    for _ in range(5):
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(MIB, device="cuda")
    gc.collect()

    assert allocated() == 0
    torch.zeros(MIB // 8, device="cuda")


def test_other_device_has_memory_of_its_own(small: Rehearsal) -> None:
    held = torch.zeros(MIB // 4, device="cuda:0")

    assert torch.zeros(MIB // 4, device="cuda:1").device == torch.device("cuda:1")
    del held


def test_host_has_no_limit(small: Rehearsal) -> None:
    assert torch.zeros(2 * MIB).device == torch.device("cpu")


def test_error_says_how_much_and_where(small: Rehearsal) -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.zeros(MIB, device="cuda:1")

    # The allocator asks the driver for 20 MiB when somebody wants 1 to 10 MiB (c10/cuda/CUDACachingAllocator.cpp, kLargeBuffer).
    assert "Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 1.00 MiB of which 1.00 MiB is free." in str(
        caught.value
    )
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("cuda", torch.OutOfMemoryError, "CUDA out of memory"),
        ("rocm", torch.OutOfMemoryError, "HIP out of memory"),
        ("mps", RuntimeError, "MPS backend out of memory"),
        ("xpu", torch.OutOfMemoryError, "XPU out of memory"),
    ],
)
def test_each_backend_runs_out_in_its_own_words(name: str, kind: type[Exception], text: str) -> None:
    with rehearse(name, memory="1MiB") as rehearsal, pytest.raises(kind, match=text):
        torch.zeros(MIB, device=rehearsal.device)


def test_limit_ends_with_the_rehearsal() -> None:
    with rehearse("cuda", memory="1MiB"):
        pass

    with rehearse("cuda"):
        assert torch.zeros(MIB, device="cuda").is_cuda


def test_batch_size_is_found_by_running_out(small: Rehearsal) -> None:
    def fits(batch: int) -> bool:
        try:
            model(torch.zeros(batch, 64, device="cuda")).sum().backward()
        except torch.OutOfMemoryError:
            return False
        return True

    model = nn.Linear(64, 64).cuda()

    assert fits(64)
    assert not fits(2**16)
    assert fits(64)
