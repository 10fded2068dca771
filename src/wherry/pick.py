"""Which device to use here, and why.

`pick()` is the line everybody writes (`cuda`, else `mps`, else `xpu`, else `cpu`) with the cases that line forgets: several
GPUs, launchers that start one process per device, a dtype or an amount of memory the device must have, and a driver that
is broken rather than absent. It asks torch, so inside a rehearsal it sees what the rehearsal shows.

The answer is a `Choice`. What may surprise: it *is* a string, "cuda:0", because a string is what torch accepts for a device
everywhere (`torch.device` can neither be subclassed nor imitated), and because it prints, hashes and travels as one. It
also has what people read off a `torch.device` (`.type`, `.index`), compares equal to it, and carries its reasons.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from wherry import backends
from wherry.backends import Backend, State
from wherry.backends._backend import first_line
from wherry.errors import BadRank, DeviceAbsent, NoSuitableDevice, TorchMissing, UnknownDevice, UnknownDtype
from wherry.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A device or backend that was not chosen."""

    device: str  # "mps", "cuda:1"
    reason: str  # as a clause: "cannot hold float64"
    broken: bool = False  # it should have been usable


class Choice(str):
    """The device that was chosen. Use it wherever torch takes a device; print it to see "cuda:0".

    Attributes:
        backend: The backend it belongs to: "rocm", where the device says "cuda:0".
        because: Why this one, as a clause.
        passed_over: What was not chosen, and why, in the order it was looked at.

    >>> import torch
    >>> choice = pick("cpu")
    >>> torch.zeros(2, device=choice).device == choice
    True
    >>> print(choice.explain())
    cpu, because you asked for it
    """

    __slots__ = ("backend", "because", "passed_over")

    backend: str
    because: str
    passed_over: tuple[PassedOver, ...]

    def __new__(cls, device: str, *, backend: str, because: str, passed_over: tuple[PassedOver, ...] = ()) -> Self:
        self = super().__new__(cls, device)
        object.__setattr__(self, "backend", backend)
        object.__setattr__(self, "because", because)
        object.__setattr__(self, "passed_over", passed_over)
        return self

    @property
    def device(self) -> torch.device:
        """The same as a `torch.device`."""
        import torch

        return torch.device(str(self))

    @property
    def type(self) -> str:
        """The device type: "cuda"."""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override] # what `.index` means for a device, not for text
        """The index among devices of its type, or None for the CPU."""
        _, colon, index = self.partition(":")
        return int(index) if colon else None

    def explain(self) -> str:
        """The choice, its reason, and what was passed over, as lines of text."""
        lines = [f"{self}, because {self.because}"]
        if self.passed_over:
            width = max(len(other.device) for other in self.passed_over)
            lines.append("passed over:")
            lines += [
                f"  {other.device:{width}}  {'broken: ' if other.broken else ''}{other.reason}"
                for other in self.passed_over
            ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The choice as plain values, for `json.dumps`."""
        return {
            "device": str(self),
            "backend": self.backend,
            "because": self.because,
            "passed_over": [
                {"device": other.device, "reason": other.reason, "broken": other.broken} for other in self.passed_over
            ],
        }

    def __str__(self) -> str:
        return str.__str__(self)

    def __repr__(self) -> str:
        return f"Choice({str(self)!r}, because={self.because!r})"

    # `tensor.device == pick()` must not be False in silence. torch.device leaves the answer to us; hashes still differ,
    # so a dict keyed by devices wants `choice.device`.
    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        import torch

        return str(self) == str(other) if isinstance(other, torch.device) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Choice is frozen; cannot set {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        return _choice, (str(self), self.backend, self.because, self.passed_over)


def _choice(device: str, backend: str, because: str, passed_over: tuple[PassedOver, ...]) -> Choice:
    return Choice(device, backend=backend, because=because, passed_over=passed_over)


def pick(
    device: str | torch.device | None = None,
    *,
    dtype: torch.dtype | str | None = None,
    memory: str | int | None = None,
) -> Choice:
    """Choose the device to use in this process.

    The first of these that says something decides where to look:

    1. the argument `device` ("auto" says nothing),
    2. the environment variable WHERRY_DEVICE,
    3. what is here: CUDA or ROCm, else MPS, else XPU, else the CPU.

    Among several devices of one type, the process's rank under a launcher decides (LOCAL_RANK of torchrun, SLURM_LOCALID of
    a Slurm step with several tasks), otherwise the one with the most free memory. Memory is only asked when it matters:
    asking starts a CUDA context on each device.

    Args:
        device: Where to look: "cuda", "rocm", "cuda:1", "auto", or a `torch.device`. "cuda" is also met by a ROCm build,
            whose devices torch calls "cuda".
        dtype: What the device must be able to hold, such as torch.float64, which passes MPS over.
        memory: How much memory must be free on it: "6GiB", or a number of bytes.

    Returns:
        The device, as a string that carries its reasons.

    Raises:
        UnknownDevice: no backend answers to this name, or there is no device of this index.
        DeviceAbsent: the device asked for is not usable here; the message tells absent from broken.
        NoSuitableDevice: no device here has the dtype or the memory.
        BadSize: `memory` is no size.
        TorchMissing: torch is not installed.

    >>> pick("cpu", dtype="float64", memory="1MiB")
    Choice('cpu', because='you asked for it')
    """
    _require_torch()
    demand = _Demand(_dtype_name(dtype), None if memory is None else parse_bytes(memory))
    asked, variable = _asked(device, os.environ)
    if asked is None:
        return _anywhere(demand)
    return _where_told(asked, variable, demand)


@dataclass(frozen=True, slots=True)
class _Demand:
    """What a device must have."""

    dtype: str | None
    nbytes: int | None

    def __str__(self) -> str:
        return " and ".join(self.words())

    def words(self) -> Iterator[str]:
        if self.dtype is not None:
            yield self.dtype
        if self.nbytes is not None:
            yield f"{format_bytes(self.nbytes)} of free memory"


def _anywhere(demand: _Demand) -> Choice:
    """The best device there is."""
    passed_over: list[PassedOver] = []
    accelerated = False
    for backend in sorted(backends.all(), key=lambda backend: -backend.priority):
        count, absence = _usable(backend)
        if absence is not None:
            passed_over.append(absence)
            continue
        found = _among(backend, count, demand, passed_over)
        if found is not None:
            index, because = found
            if backend.priority == 0:
                because = f"no accelerator here has {demand}" if accelerated else "no accelerator is here"
            return Choice(_name(backend, index), backend=backend.name, because=because, passed_over=tuple(passed_over))
        accelerated = accelerated or backend.priority > 0
    raise NoSuitableDevice(demand.words(), [(other.device, other.reason) for other in passed_over])


def _where_told(asked: str, variable: str | None, demand: _Demand) -> Choice:
    """The best device among those that answer to `asked`."""
    name, colon, digits = asked.strip().lower().partition(":")
    candidates = _answering_to(name)
    if not candidates or (colon and not re.fullmatch(r"\d+", digits)):
        known = [backend.name for backend in backends.all()]
        raise UnknownDevice(asked, known, environment=f'{variable} is "{asked}"' if variable else None)
    because = f'{variable} is "{asked}"' if variable else "you asked for it"
    absences: list[PassedOver] = []
    for backend in candidates:
        count, absence = _usable(backend)
        if absence is not None:
            absences.append(absence)
            continue
        passed_over: list[PassedOver] = []
        if colon:
            found = _one(backend, _index(asked, int(digits), backend, count), demand, passed_over)
        else:
            found = _among(backend, count, demand, passed_over)
        if found is None:
            raise NoSuitableDevice(demand.words(), [(other.device, other.reason) for other in passed_over])
        index, detail = found
        if count > 1 and not colon:
            because = f"{because} and {detail}"
        return Choice(_name(backend, index), backend=backend.name, because=because, passed_over=tuple(passed_over))
    worst = next((absence for absence in absences if absence.broken), absences[0])
    raise DeviceAbsent(asked, worst.reason, broken=worst.broken, asked_by=variable)


def _among(backend: Backend, count: int, demand: _Demand, passed_over: list[PassedOver]) -> tuple[int, str] | None:
    """The best of the `count` devices of one backend, and why; None when none of them does."""
    rank = _rank(os.environ)
    if rank is not None and backend.priority > 0:
        index, because = _of_rank(rank, backend, count)
        return _one(backend, index, demand, passed_over) and (index, because)
    if count == 1:
        return _one(backend, 0, demand, passed_over)
    free: dict[int, int] = {}
    for index in range(count):
        nbytes, unmet = _examine(backend, index, demand, ask_memory=True)
        if unmet is None:
            free[index] = nbytes or 0
        else:
            passed_over.append(unmet)
    if not free:
        return None
    best = max(free, key=lambda index: (free[index], -index))
    for index, nbytes in free.items():
        reason = f"has {format_bytes(nbytes)} of free memory, {_name(backend, best)} has more"
        if nbytes == free[best]:
            reason = f"has as much free memory as {_name(backend, best)}"
        if index != best:
            passed_over.append(PassedOver(_name(backend, index), reason))
    return best, f"of {count} {backend.title} devices it has the most free memory, {format_bytes(free[best])}"


def _one(backend: Backend, index: int, demand: _Demand, passed_over: list[PassedOver]) -> tuple[int, str] | None:
    """Device `index`, if it does."""
    _, unmet = _examine(backend, index, demand, ask_memory=demand.nbytes is not None)
    if unmet is None:
        return index, f"it is the {backend.title} device here"
    passed_over.append(unmet)
    return None


def _examine(
    backend: Backend, index: int, demand: _Demand, *, ask_memory: bool
) -> tuple[int | None, PassedOver | None]:
    """The free bytes of a device, where asked and known, and why it does not do, if it does not."""
    try:
        memory = backend.memory(index) if ask_memory else None
        holds = demand.dtype is None or backend.can_hold(demand.dtype, index)
    except Exception as err:  # noqa: BLE001 - drivers raise anything; one broken GPU must not hide the others
        return None, PassedOver(_name(backend, index), first_line(err), broken=True)
    free = memory.free if memory else None
    if not holds:
        return free, PassedOver(_name(backend, index), f"cannot hold {demand.dtype}")
    # Unknown is not too little: a Mac's CPU does not tell what is free.
    if demand.nbytes is not None and free is not None and free < demand.nbytes:
        reason = f"has {format_bytes(free)} of free memory, less than {format_bytes(demand.nbytes)}"
        return free, PassedOver(_name(backend, index), reason)
    return free, None


def _of_rank(rank: _Rank, backend: Backend, count: int) -> tuple[int, str]:
    """The device of this process among those a launcher started, and why."""
    if rank.value < count:
        return rank.value, f"{rank.variable} is {rank.value}"
    if count == 1 and (backend.hidden_by() or (backend.virtual and backend.virtual.max_count == 1)):
        # Each process was shown a device of its own, or there is but one to share, as on a Mac.
        return 0, f"{rank.variable} is {rank.value} and this process sees one {backend.title} device"
    raise UnknownDevice(
        f"{backend.device_type}:{rank.value}",
        [_name(backend, index) for index in range(count)],
        title=backend.name.upper(),
        environment=" and ".join(filter(None, [f'{rank.variable} is "{rank.value}"', backend.hidden_by()])),
        fix=f"Start at most {count} {'process' if count == 1 else 'processes'} on this machine.",
    )


def _usable(backend: Backend) -> tuple[int, PassedOver | None]:
    """How many devices of a backend can be used; when none, the reason, which tells broken from absent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a broken driver; the reason says it once
        try:
            count = backend.count()
        except Exception as err:  # noqa: BLE001 - drivers raise anything; the reason is kept and shown
            return 0, PassedOver(backend.name, first_line(err), broken=True)
    if count:
        return count, None
    presence = backend.probe()
    return 0, PassedOver(backend.name, presence.reason, broken=presence.state is State.BROKEN)


def _answering_to(name: str) -> list[Backend]:
    """The backends a user may mean: the one of this name or alias, then those whose tensors say so."""
    named = [backend for backend in backends.all() if name == backend.name or name in backend.aliases]
    return named + [backend for backend in backends.all() if name == backend.device_type and backend not in named]


def _index(asked: str, index: int, backend: Backend, count: int) -> int:
    """`index`, if there is such a device."""
    if index < count:
        return index
    known = [_name(backend, other) for other in range(count)]
    raise UnknownDevice(asked, known, title=backend.name.upper(), environment=backend.hidden_by())


def _name(backend: Backend, index: int) -> str:
    """What torch calls the device: "cuda:1"; the host has no index."""
    return f"{backend.device_type}:{index}" if backend.priority > 0 else backend.device_type


def _asked(device: str | torch.device | None, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Where to look, or None for anywhere; and the variable that says so, or None for the caller."""
    if device is not None:
        return (None, None) if str(device) == "auto" else (str(device), None)
    value = environ.get("WHERRY_DEVICE", "")
    return (None, None) if value in ("", "auto") else (value, "WHERRY_DEVICE")


@dataclass(frozen=True, slots=True)
class _Rank:
    """Which of the processes of one machine this is, and who says so."""

    variable: str
    value: int


def _rank(environ: Mapping[str, str]) -> _Rank | None:
    if "LOCAL_RANK" in environ:
        variable = "LOCAL_RANK"
    # Slurm also sets it, to 0, for a single task and in batch scripts, where it means nothing.
    elif "SLURM_LOCALID" in environ and environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        variable = "SLURM_LOCALID"
    else:
        return None
    if not re.fullmatch(r"\d+", environ[variable]):
        raise BadRank(variable, environ[variable])
    return _Rank(variable, int(environ[variable]))


def _dtype_name(dtype: torch.dtype | str | None) -> str | None:
    """The one name a dtype has in `Capabilities`: torch.double and "half" are float64 and float16."""
    if dtype is None:
        return None
    import torch

    if isinstance(dtype, str):
        found: object = getattr(torch, dtype.removeprefix("torch."), None)
        if not isinstance(found, torch.dtype):
            raise UnknownDtype(dtype, [name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)])
        dtype = found
    return str(dtype).removeprefix("torch.")


def _require_torch() -> None:
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as err:
        raise TorchMissing("wherry.pick()", reason=None if err.name == "torch" else str(err)) from err
    except (ImportError, OSError) as err:
        raise TorchMissing("wherry.pick()", reason=str(err)) from err
