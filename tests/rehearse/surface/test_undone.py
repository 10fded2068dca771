"""A thousand rehearsals leave nothing behind: no name of torch, no storage, no thread's device, whatever went wrong inside."""

from __future__ import annotations

import contextlib
import gc
import importlib
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from wherry.rehearse import impersonate, rehearse
from wherry.rehearse.impersonate import patches
from wherry.storage import ATTRIBUTE, Resident

pytestmark = pytest.mark.alone  # counts every byte of a device

BACKENDS = ("cpu", "cuda", "rocm", "mps", "xpu")
CYCLES = 1000


def owners() -> list[object]:
    """Whatever any stand-in is put on, found by asking the stand-ins, and what a look at torch suggests besides."""
    found = {id(patch.owner): patch.owner for part in impersonate._PARTS for patch in part.patches()}
    for name in ("torch", "torch.cuda", "torch.xpu", "torch.mps", "torch._C", "torch.version", "torch.backends", "sys"):
        module = importlib.import_module(name)
        found[id(module)] = module
    for cls in (torch.Tensor, torch.UntypedStorage, torch.nn.Module, threading.Thread, torch.distributed.ProcessGroup):
        found[id(cls)] = cls
    return list(found.values())


def picture(everybody: list[object]) -> dict[tuple[str, str], int]:
    """Every name of every owner with the identity of what it holds, and the state a program could notice."""
    names = {
        (f"{type(owner).__name__} {getattr(owner, '__name__', id(owner))}", name): id(value)
        for owner in everybody
        for name, value in vars(owner).items()
    }
    state = {
        ("meta_path", ""): hash(tuple(map(id, sys.meta_path))),
        ("modes", ""): len(_get_current_dispatch_mode_stack()),
        ("default device", ""): hash(str(torch.get_default_device())),
        ("default dtype", ""): hash(torch.get_default_dtype()),
        ("autocast", ""): hash((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))),
        ("generator", ""): torch.default_generator.initial_seed(),
        ("record", ""): hasattr(torch.UntypedStorage, ATTRIBUTE),
    }
    return {**names, **state}


@pytest.fixture
def unchanged() -> Iterator[None]:
    """What the test finds it must leave."""
    with rehearse("cuda"):
        program("cuda", steps=99)  # torch imports parts of itself on first use
    everybody = owners()
    before = picture(everybody)

    yield

    gc.collect()
    assert picture(everybody) == before


class Interrupted(Exception):
    """Thrown at a point of nobody's choosing."""


STEPS: list[Callable[[str, list[torch.Tensor]], object]] = [
    lambda device, kept: kept.append(torch.ones(3, 3, device=device)),
    lambda device, kept: kept.append(kept[0] @ kept[0]),
    lambda device, kept: kept.append(kept[-1].cpu()),
    lambda device, kept: torch.accelerator.synchronize() if device != "cpu" else None,
    lambda device, kept: kept.append(torch.nn.Linear(3, 3).to(device)(kept[0]).sum()),
    lambda device, kept: kept[-1].backward(),
    lambda device, kept: torch.manual_seed(len(kept)) if device == "never" else None,
    lambda device, kept: torch.get_device_module(device).set_device(0) if device in ("cuda", "xpu") else None,
    lambda device, kept: torch.get_device_module(device).memory_stats() if device in ("cuda", "xpu") else None,
    lambda device, kept: kept.append(torch.empty(2, 2, device=device).normal_()),
]


def program(device: str, *, steps: int) -> None:
    """A few uses of a device, cut short by an exception after some of them."""
    kept: list[torch.Tensor] = []
    for number, step in enumerate(STEPS):
        if number == steps:
            raise Interrupted
        step(device, kept)


def device_type(backend: str) -> str:
    return "cuda" if backend == "rocm" else backend


@pytest.mark.slow
def test_a_thousand_rehearsals_leave_torch_as_it_was(unchanged: None) -> None:
    chance = random.Random(0)
    cut_short = 0

    for _ in range(CYCLES):
        backend = chance.choice(BACKENDS)
        steps = chance.randrange(len(STEPS) * 2)  # half of them run to the end
        try:
            with rehearse(backend):
                program(device_type(backend), steps=steps if chance.random() < 0.1 else 0)
        except Interrupted:
            cut_short += 1

    assert cut_short > CYCLES // 2


def test_an_exception_in_the_middle_of_entering_leaves_torch_as_it_was(
    unchanged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entering puts hundreds of stand-ins in place; any of them may fail."""
    chance = random.Random(1)

    for _ in range(30):
        left = chance.randrange(300)

        def replace(patch: patches.Patch) -> patches.Patch:
            nonlocal left
            left -= 1
            if left < 0:
                raise Interrupted
            return patches.replace(patch)

        with monkeypatch.context() as context:
            context.setattr(impersonate, "replace", replace)
            with pytest.raises(Interrupted):
                rehearse("cuda").__enter__()


@pytest.mark.slow
def test_threads_that_rehearse_side_by_side_leave_torch_as_it_was(unchanged: None) -> None:
    wrong: list[BaseException] = []

    def rehearse_often(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(40):
                backend = chance.choice(BACKENDS)
                with contextlib.suppress(Interrupted), rehearse(backend):
                    program(device_type(backend), steps=chance.randrange(len(STEPS) + 1))
        except BaseException as err:
            wrong.append(err)

    threads = [threading.Thread(target=rehearse_often, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_a_name_left_behind_would_be_noticed() -> None:
    everybody = owners()
    before = picture(everybody)

    torch.cuda.left_behind = 1  # type: ignore[attr-defined]
    try:
        assert picture(everybody) != before
    finally:
        del torch.cuda.left_behind  # type: ignore[attr-defined]
    assert picture(everybody) == before


# Nothing that was made outlives its last reference


def residents() -> int:
    return sum(type(found) is Resident for found in gc.get_objects())


@pytest.mark.parametrize("backend", ["cuda", "rocm", "mps", "xpu"])
def test_no_storage_outlives_the_rehearsal(backend: str) -> None:
    gc.collect()
    before = residents()
    device = device_type(backend)

    for _ in range(5):
        with rehearse(backend, memory="1GiB") as rehearsal:
            program(device, steps=99)
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).to(device)
            optimizer = torch.optim.AdamW(model.parameters())
            model(torch.ones(2, 4, device=device)).sum().backward()
            optimizer.step()
            del model, optimizer
        place = rehearsal.places[0]
    gc.collect()

    assert residents() == before
    assert place.allocated == 0


def test_captured_graph_frees_what_it_held() -> None:
    gc.collect()
    before = residents()

    with rehearse("cuda"):
        x = torch.ones(8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 2
        del x, y
        assert residents() > before
        del graph
        gc.collect()

        assert residents() == before


def test_rehearsal_itself_can_go() -> None:
    with rehearse("cuda") as rehearsal:
        torch.cuda.Stream()
        torch.ones(1, device="cuda")
    gone = weakref.ref(rehearsal)

    del rehearsal
    gc.collect()

    assert gone() is None


def test_tensor_that_is_kept_is_seen_to_be_kept() -> None:
    """The twin of the above: a storage that does outlive its rehearsal is counted."""
    gc.collect()
    before = residents()

    with rehearse("cuda"):
        kept = torch.ones(1, device="cuda")

    assert residents() == before + 1
    del kept
    assert residents() == before
