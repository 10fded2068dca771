"""One program on every backend: a `wherry run --virtual` for each, in a process of its own.

A list of backends and a program go in, a `Matrix` of `Verdict`s comes out. What the programs print goes to one log file
each. The one surprise: they run one after the other unless told otherwise, because programs tend to write to the same
files and to listen on the same ports.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from wherry import backends
from wherry.errors import CannotRehearse
from wherry.explain import message
from wherry.explain.message import Complaint
from wherry.run.program import Program
from wherry.run.result import Failure, Result

PLACEHOLDER = "{device}"
"""In the program's arguments, stands for the device type torch knows each backend by: "cuda" for rocm."""

_GRACE = 2.0
"""Seconds between SIGTERM, on which `wherry run` tells where the program was, and SIGKILL."""

_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


class Outcome(enum.Enum):
    """How a program did on one backend."""

    OK = "ok"
    FALLS_BACK = "falls back"  # it ran, and operators went through the CPU
    FAILED = "failed"
    NO_KERNEL = "no kernel"  # it failed at an operator that the device has no kernel for
    NO_DTYPE = "no dtype"  # it failed at a dtype that the device does not have
    TIMED_OUT = "timed out"

    @property
    def ran(self) -> bool:
        """Whether the program ended as it should."""
        return self in (Outcome.OK, Outcome.FALLS_BACK)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One program on one backend.

    Attributes:
        backend: Its name.
        outcome: How it did.
        result: What `wherry run --result` says of it.
        seconds: Of the whole process, the start of Python and the import of torch included.
        log: The file with what it printed, stdout and stderr in the order they came.
    """

    backend: str
    outcome: Outcome
    result: Result
    seconds: float
    log: Path

    def last_lines(self, count: int | None = None) -> tuple[str, ...]:
        """The end of what it printed, or all of it."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return tuple(lines if count is None else lines[-count:])


@dataclass(frozen=True, slots=True)
class Matrix:
    """One program on several backends, in the order they were asked for."""

    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        return all(verdict.outcome.ran for verdict in self.verdicts)

    def to_json(self) -> list[dict[str, object]]:
        """The results, as `wherry run --result` writes them."""
        return [verdict.result.to_json() for verdict in self.verdicts]


def choose(names: Sequence[str] = ()) -> tuple[str, ...]:
    """The backends to run on, each once: those named, or all that can be rehearsed.

    Raises:
        UnknownDevice: no backend of that name.
        CannotRehearse: it has no virtual device.
    """
    if not names:
        return tuple(backend.name for backend in backends.all() if backend.virtual is not None)
    chosen: dict[str, None] = {}
    for name in names:
        backend = backends.find(name)
        if backend.virtual is None:
            raise CannotRehearse(backend.name, "its file describes no virtual device")
        chosen[backend.name] = None
    return tuple(chosen)


def run_matrix(
    program: Program,
    names: Sequence[str],
    *,
    folder: Path,
    timeout: float | None = None,
    jobs: int = 1,
    surveys: bool = False,
    started: Callable[[str], None] = lambda name: None,
    ended: Callable[[Verdict], None] = lambda verdict: None,
) -> Matrix:
    """Run a program on each backend.

    Args:
        program: What to run. "{device}" in its arguments becomes the backend's device type.
        names: Backends, from `choose`.
        folder: Where the logs go.
        timeout: Seconds each may take, or None.
        jobs: How many run at a time.
        surveys: Whether every operator that is used is noted, with its line (`Counts.uses`).
        started: Called when one begins, on another thread.
        ended: Called when one has ended, on another thread.

    A KeyboardInterrupt ends what is running, and passes.
    """
    running = _Running()

    def one(name: str) -> Verdict:
        started(name)
        verdict = _run_one(program, name, folder, timeout, running, surveys=surveys)
        ended(verdict)
        return verdict

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(one, name) for name in names]
        try:
            wait(futures)
        except BaseException:
            for future in futures:
                future.cancel()
            running.end_all()
            raise
    return Matrix(tuple(future.result() for future in futures))


class _Running:
    """The processes that run now, so that all of them can be ended from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._over = False

    @contextlib.contextmanager
    def one(self, argv: Sequence[str], log: Path):
        with self._lock:
            if self._over:
                raise KeyboardInterrupt
            with log.open("wb") as stream:
                # A session of its own: a timeout then ends the children of the program as well.
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
                )
            self._processes.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._processes.discard(process)

    def end_all(self) -> None:
        with self._lock:
            self._over = True
            processes = tuple(self._processes)
        for process in processes:
            _kill_group(process, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            _kill_group(process, _KILL)


def _run_one(
    program: Program, name: str, folder: Path, timeout: float | None, running: _Running, *, surveys: bool
) -> Verdict:
    log, result_file = folder / f"{name}.log", folder / f"{name}.json"
    argv = [sys.executable, "-m", "wherry", "run", "--on", name, "--virtual", "--quiet", "--result", str(result_file)]
    argv += ["--surveys"] if surveys else []
    argv += _fill_in(program.words(), backends.find(name).device_type)
    begin = time.monotonic()
    late = False
    with running.one(argv, log) as process:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            late = True
            _end(process)
    seconds = time.monotonic() - begin
    result = _read(result_file, name, log, process.returncode)
    if late:
        where = result.error
        error = Failure(
            "TimedOut",
            f"It had not ended after {timeout:g} s.",
            where.file if where else None,
            where.line if where else None,
        )
        return Verdict(name, Outcome.TIMED_OUT, result.but(status=None, error=error), seconds, log)
    return Verdict(name, _outcome(result, process.returncode), result, seconds, log)


_COMPLAINTS = {Complaint.KERNEL: Outcome.NO_KERNEL, Complaint.DTYPE: Outcome.NO_DTYPE}


def _outcome(result: Result, returncode: int) -> Outcome:
    if returncode == 0:
        return Outcome.FALLS_BACK if result.counts is not None and result.counts.fallbacks else Outcome.OK
    complaint = None if result.error is None else message.read(result.error.type, result.error.message)
    return Outcome.FAILED if complaint is None else _COMPLAINTS.get(complaint.complaint, Outcome.FAILED)


def _fill_in(words: Sequence[str], device_type: str) -> list[str]:
    """The first word is the script, or says what the second is: those stay."""
    names = 1 if words[0] not in ("-m", "--") else 2
    return [*words[:names], *(word.replace(PLACEHOLDER, device_type) for word in words[names:])]


def _read(file: Path, name: str, log: Path, returncode: int) -> Result:
    status = 128 - returncode if returncode < 0 else returncode
    try:
        result = Result.read(file)
    except (OSError, ValueError, KeyError):
        # It did not come as far as the program: what `wherry run` said is all there is.
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        error = Failure("NotStarted", said[-1] if said else "wherry run said nothing")
        return Result(name, True, status, error, None)
    if result.status is not None:
        return result
    # The file is the one from the start: os._exit, a crash, or a signal that cannot be handled.
    if returncode < 0:
        name = signal.Signals(-returncode).name
        return result.but(status=status, error=Failure(name, f"The process was ended by the signal {name}."))
    return result.but(status=status, error=None)


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    _kill_group(process, _KILL)  # also what the process left behind
    process.wait()


def _kill_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if not hasattr(os, "killpg"):  # Windows
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
