"""What every test starts from: one thread, no variable that chooses a device, and machines made to measure."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: results that do not depend on the machine's cores

from collections.abc import Sequence

import pytest

from wherry import backends
from wherry.backends import Backend, Memory, Presence, State

LAUNCHERS = ("LOCAL_RANK", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS")
VISIBILITY = tuple(name for backend in backends.all() for name in backend.visibility)


@pytest.fixture(autouse=True)
def _no_device_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the tests must not choose for them."""
    for name in [name for name in os.environ if name.startswith("WHERRY_")]:
        monkeypatch.delenv(name)
    for name in {*LAUNCHERS, *VISIBILITY}:
        monkeypatch.delenv(name, raising=False)


def present(name: str, *free: int, holds: Sequence[str] | None = None) -> Backend:
    """The real backend `name`, on a machine that has one device for each entry of `free`, its free bytes."""
    kind = type(backends.find(name))

    class Here(kind):
        def count(self) -> int:
            return len(free)

        def look(self) -> Presence:
            names = tuple(f"{kind.title} {index}" for index in range(len(free)))
            return Presence(State.PRESENT, "here", len(free), names)

        def memory(self, index: int) -> Memory:
            return Memory(free=free[index], total=2 * free[index])

        def can_hold(self, dtype: str, index: int | None = None) -> bool:
            return dtype in (self.capabilities.dtypes if holds is None else holds)

    return Here()


def broken(name: str, why: str) -> Backend:
    """The real backend `name`, on a machine whose driver answers every question with an exception."""
    kind = type(backends.find(name))

    class Broken(kind):
        def count(self) -> int:
            raise RuntimeError(why)

        def look(self) -> Presence:
            raise RuntimeError(why)

    return Broken()


class Machine:
    """Builds machines: `machine(machine.present("cuda", 2**30))` has one CUDA device and this machine's CPU."""

    present = staticmethod(present)
    broken = staticmethod(broken)

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, *stand_ins: Backend) -> None:
        by_name = {backend.name: backend for backend in stand_ins}
        known = tuple(by_name.get(backend.name, backend) for backend in backends.all())
        self._monkeypatch.setattr(backends, "all", lambda: known)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Facts of the real backends, answers of a machine made to measure."""
    return Machine(monkeypatch)
