"""What every test starts from: one thread, no variable that chooses a device, machines made to measure, real processes."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: results that do not depend on the machine's cores

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

import wherry
from wherry import backends
from wherry.backends import Backend, Memory, Presence, State

# The first example of a property may import what later ones find imported, and machines that run tests are shared.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

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


SRC = str(Path(wherry.__file__).parents[1])


def environment(**changes: str) -> dict[str, str]:
    """The environment of the tests, without what would change how a program runs, and with this wherry on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WHERRY_", "PYTHON", "COV_"))}
    return {**kept, "PYTHONPATH": SRC, "OMP_NUM_THREADS": "1", **changes}


@dataclass(frozen=True)
class Done:
    """A process that has ended."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Folder:
    """A folder with programs, and the ways to run them."""

    path: Path

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    def start(self, *argv: str, env: Mapping[str, str] | None = None, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            cwd=self.path,
            env=environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )

    def end(self, process: subprocess.Popen[str]) -> Done:
        stdout, stderr = process.communicate(timeout=60)
        return Done(process.returncode, stdout, stderr)

    def wherry(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        return self.end(self.start(sys.executable, "-m", "wherry", *args, env=env))

    def python(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        return self.end(self.start(sys.executable, *args, env=env))

    def result(self, name: str = "result.json") -> dict[str, object]:
        return json.loads((self.path / name).read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def script(folder: Folder) -> Callable[[str], str]:
    """Write `program.py`, and give its name."""

    def write(text: str) -> str:
        return folder.write("program.py", text).name

    return write
