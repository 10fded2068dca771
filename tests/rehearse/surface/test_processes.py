"""Process groups keep the device's library by name; forked children are told what the real runtime tells them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

from wherry.rehearse import rehearse
from wherry.rehearse.wording import torch_release

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch is built without torch.distributed")


def join(backend: str | None, **options: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _left() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize(("device", "backend"), [("cuda", "nccl"), ("rocm", "nccl"), ("xpu", "xccl")])
def test_library_of_the_device_is_there_and_keeps_its_name(device: str, backend: str) -> None:
    if not hasattr(dist, f"is_{backend}_available"):
        pytest.skip(f"this torch knows no {backend}")
    kind = "cuda" if device == "rocm" else device
    with rehearse(device):
        assert getattr(dist, f"is_{backend}_available")()
        join(backend)
        x = torch.full((2,), 3.0, device=kind)

        dist.all_reduce(x)
        parts = [torch.zeros(2, device=kind)]
        dist.all_gather(parts, x)
        seen: list[object] = [None]
        dist.all_gather_object(seen, {"rank": 0})
        dist.barrier(device_ids=[0])

        assert dist.get_backend() == backend == dist.get_backend(dist.new_group([0]))
        assert (x.tolist(), parts[0].device.type, seen) == ([3.0, 3.0], kind, [{"rank": 0}])
        with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
            dist.all_reduce(torch.ones(2))
        with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
            nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        dist.destroy_process_group()


def test_parallel_module_trains_on_the_device() -> None:
    with rehearse("cuda"):
        join("nccl", device_id=torch.device("cuda", 0))
        model = nn.Linear(2, 2).cuda()

        nn.parallel.DistributedDataParallel(model, device_ids=[0])(torch.ones(3, 2, device="cuda")).sum().backward()

        assert model.weight.grad is not None
        assert model.weight.grad.device.type == "cuda"
        dist.destroy_process_group()


def test_a_group_with_both_moves_both() -> None:
    with rehearse("cuda"):
        join("cpu:gloo,cuda:nccl")

        for x in (torch.ones(2), torch.ones(2, device="cuda")):
            dist.all_reduce(x)
            assert x.tolist() == [1.0, 1.0]
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("device", "backend", "text"),
    [
        ("cuda", "bogus", "[Uu]nknown"),
        ("cuda", "xccl", "Distributed package doesn't have XCCL built in"),
        ("cuda", "mpi", "Distributed package doesn't have MPI built in"),
        ("xpu", "nccl", "Distributed package doesn't have NCCL built in"),
        ("mps", "nccl", "Distributed package doesn't have NCCL built in"),
        ("cpu", "nccl", "Distributed package doesn't have NCCL built in"),
    ],
)
def test_other_libraries_fail_in_torchs_own_words(device: str, backend: str, text: str) -> None:
    if backend == "xccl" and torch_release() < (2, 7):
        pytest.skip("xccl came with 2.7")

    with rehearse(device), pytest.raises((RuntimeError, ValueError, AssertionError), match=text):
        join(backend)


@pytest.mark.skipif(torch_release() < (2, 11), reason="MPS has words of its own since 2.11")
def test_collectives_on_a_mac_are_refused() -> None:
    with rehearse("mps"):
        join("gloo")
        with pytest.raises(
            NotImplementedError, match="'c10d::allreduce_' is not currently implemented for the MPS device"
        ):
            dist.all_reduce(torch.ones(1, device="mps"))
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()


def test_nothing_of_it_stays() -> None:
    before = dist.is_nccl_available()

    with rehearse("cuda"):
        assert dist.is_nccl_available()

    assert dist.is_nccl_available() == before


FORKS = """
import os, sys, warnings
import torch
from wherry.rehearse import rehearse

warnings.simplefilter("ignore")

def in_a_child(what):
    pid = os.fork()
    if pid == 0:
        try:
            print(what(), flush=True)
        except BaseException as error:
            print(type(error).__name__, str(error).splitlines()[0], flush=True)
        os._exit(0)
    os.waitpid(pid, 0)

device = sys.argv[1]
with rehearse(device):
    kind = torch.accelerator.current_accelerator().type
    in_a_child(lambda: torch.ones(2, device=kind).sum().item())
    held = torch.ones(2, device=kind)
    for what in (
        lambda: torch.ones(2, device=kind).sum().item(),
        lambda: torch.ones(2).to(kind).sum().item(),
        lambda: (held * 2).sum().item(),
        lambda: torch.ones(2).sum().item(),
        lambda: torch.get_device_module(kind).is_available(),
    ):
        in_a_child(what)
    print((held * 2).sum().item())
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "xpu", "mps"])
def test_forked_child_may_use_the_device_unless_its_parent_has(device: str, folder) -> None:  # type: ignore[no-untyped-def]
    folder.write("forks.py", FORKS)

    lines = folder.python("forks.py", device).stdout.splitlines()

    if device == "mps":  # it has no such guard
        assert lines == ["2.0", "2.0", "2.0", "4.0", "2.0", "True", "4.0"]
        return
    word = device.upper()
    told = f"RuntimeError Cannot re-initialize {word} in forked subprocess. To use {word} with multiprocessing, you must use the "
    assert lines[0] == "2.0"
    assert lines[1] == lines[2] == told + "'spawn' start method"
    assert lines[3].endswith("Error CUDA error: initialization error")
    assert lines[4:] == ["2.0", "True", "4.0"]
