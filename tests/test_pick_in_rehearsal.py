"""Inside a rehearsal, `pick()` sees the rehearsed machine, because it asks torch."""

from __future__ import annotations

import pytest
import torch

import wherry
from wherry import backends
from wherry.backends import State
from wherry.units import GIB

ACCELERATORS = [backend.name for backend in backends.all() if backend.priority > 0 and backend.virtual]


@pytest.mark.parametrize("name", ACCELERATORS)
def test_rehearsed_device_is_picked_and_used(name: str) -> None:
    with wherry.rehearse(name):
        choice = wherry.pick()
        made = torch.zeros(2, device=choice)

        assert choice.backend == name
        assert choice == f"{backends.find(name).device_type}:0"
        assert made.device == choice


def test_machine_without_an_accelerator_picks_the_cpu() -> None:
    with wherry.rehearse("cpu"):
        assert wherry.pick() == "cpu"


@pytest.mark.parametrize("name", ACCELERATORS)
def test_only_the_rehearsed_accelerator_is_present(name: str) -> None:
    with wherry.rehearse(name):
        present = {backend.name for backend in backends.all() if backend.probe().state is State.PRESENT}

    assert present == {"cpu", name}


@pytest.mark.parametrize("name", ACCELERATORS)
def test_rehearsed_device_has_the_memory_it_was_given(name: str) -> None:
    with wherry.rehearse(name, memory="3GiB"):
        memory = backends.find(name).memory(0)

        assert memory is not None
        assert memory.total == 3 * GIB
        with pytest.raises(wherry.NoSuitableDevice):
            wherry.pick(name, memory="4GiB")


def test_float64_passes_a_rehearsed_mac_over() -> None:
    with wherry.rehearse("mps"):
        assert wherry.pick(dtype=torch.float64) == "cpu"


def test_emptier_of_two_rehearsed_devices_is_picked() -> None:
    with wherry.rehearse("cuda", count=2):
        held = torch.zeros(2**20, device="cuda:0")
        choice = wherry.pick()

    assert held.numel() == 2**20
    assert choice == "cuda:1"


def test_rank_picks_among_rehearsed_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")

    with wherry.rehearse("xpu", count=2):
        assert wherry.pick() == "xpu:1"


def test_nothing_of_it_is_left_afterwards() -> None:
    before = wherry.pick().to_json()

    with wherry.rehearse("mps"):
        pass

    assert wherry.pick().to_json() == before
