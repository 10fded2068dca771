"""Where a program shall run: the device, how many, and whether it is to be rehearsed.

A `Plan` is made from the command line in the parent, and from the environment in its children: both take part in the
same run. Whether a real device is here is asked as late as possible (`Plan.is_virtual`), because only torch knows, and
because a program may set environment variables that torch reads when it is imported.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from wherry import backends
from wherry.backends import Backend, Presence, State
from wherry.errors import BadCount, CannotRehearse, DeviceAbsent, UnknownDevice, UnknownProfile, nearest
from wherry.units import parse_bytes

_ON, _INDEX, _COUNT, _MEMORY, _WANT = "WHERRY_ON", "WHERRY_INDEX", "WHERRY_COUNT", "WHERRY_MEMORY", "WHERRY_WANT"
_PROFILE, _SURVEYS = "WHERRY_PROFILE", "WHERRY_SURVEYS"


class Want(enum.Enum):
    """What is asked of a run."""

    VIRTUAL = "virtual"  # rehearse, whatever is here
    REAL = "real"  # the program unchanged, or nothing
    EITHER = "either"  # real where the devices asked for are here, else rehearse


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a program shall run.

    Attributes:
        backend: Its name: "rocm".
        index: The device asked for: `--on cuda:1` is 1. The program still sees all `count` devices.
        count: How many devices of the backend there shall be, more than `index`.
        memory: Bytes of each virtual device, or None for what the backend usually has.
        want: Real, virtual, or either.
        profile: The model of each virtual device, or None for the usual one.
        surveys: Whether a rehearsal notes every operator that is used, with its line.
    """

    backend: str
    index: int
    count: int
    memory: int | None
    want: Want
    profile: str | None = None
    surveys: bool = False

    @property
    def device(self) -> str:
        """As wherry writes it: "mps:0", "rocm:1", "cpu"."""
        return self.backend if self.backend == "cpu" else f"{self.backend}:{self.index}"

    def is_virtual(self) -> bool:
        """Whether this process rehearses. Imports torch, if it must ask for real devices; starts no runtime."""
        if self.want is Want.EITHER:
            return backends.find(self.backend).count() < self.count
        return self.want is Want.VIRTUAL

    def write_to(self, environ: MutableMapping[str, str]) -> None:
        """Tell child processes."""
        forget(environ)
        environ[_ON] = self.backend
        environ[_INDEX] = str(self.index)
        environ[_COUNT] = str(self.count)
        if self.memory is not None:
            environ[_MEMORY] = str(self.memory)
        if self.profile is not None:
            environ[_PROFILE] = self.profile
        environ[_WANT] = self.want.value
        if self.surveys:
            environ[_SURVEYS] = "1"

    @classmethod
    def read_from(cls, environ: Mapping[str, str]) -> Plan:
        """What the parent told: the inverse of `write_to`. `WHERRY_ON` alone is enough.

        Raises:
            KeyError: there is no `WHERRY_ON`.
            WherryError, ValueError: a variable holds what `wherry run` never writes.
        """
        backend = backends.find(environ[_ON])
        memory = environ.get(_MEMORY)
        return cls(
            backend.name,
            int(environ.get(_INDEX, "0")),
            int(environ.get(_COUNT, "1")),
            None if memory is None else parse_bytes(memory),
            Want(environ.get(_WANT, "virtual")),
            environ.get(_PROFILE),
            environ.get(_SURVEYS) == "1",
        )


def forget(environ: MutableMapping[str, str]) -> None:
    """Take the plan of an enclosing run out of an environment."""
    for name in (_ON, _INDEX, _COUNT, _MEMORY, _WANT, _PROFILE, _SURVEYS):
        environ.pop(name, None)


def make(
    on: str | None = None,
    *,
    want: Want = Want.EITHER,
    count: int | None = None,
    memory: str | None = None,
    profile: str | None = None,
    surveys: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """Decide where to run.

    Args:
        on: "mps", "cuda", "cuda:1" (then there are at least two). None: `WHERRY_DEVICE`, else the choice of
            `wherry.pick()`, which imports torch.
        want: Real, virtual or either. With a memory or a profile, either means virtual: a real device is what it is.
        count: How many devices.
        memory: Of each virtual device: "8GiB".
        profile: The model of each virtual device: "rtx4090".
        surveys: Whether a rehearsal notes every operator that is used.
        environ: The environment.

    Raises:
        UnknownDevice, UnknownProfile, BadCount, BadSize: what was asked for makes no sense.
        CannotRehearse: this backend has no virtual device.
        DeviceAbsent: a real device was insisted on and is not here; the reason is the probe's.
    """
    nbytes = None if memory is None else parse_bytes(memory)
    if (nbytes is not None or profile is not None) and want is Want.EITHER:
        want = Want.VIRTUAL
    asked = on or _default(environ)
    backend, index = parse(asked)
    known = 1 if backend.virtual is None else backend.virtual.max_count
    if count is None:
        count = max(1, index + 1)
    if count < 1 or (want is not Want.REAL and count > known):
        raise BadCount(count, backend=backend.name, most=known)
    if index >= count:
        raise UnknownDevice(asked, [f"{backend.name}:{i}" for i in range(count)], title=backend.title)
    if want is Want.VIRTUAL and backend.virtual is None:
        raise CannotRehearse(backend.name, "its file describes no virtual device")
    profiles = {} if backend.virtual is None else backend.virtual.profiles
    if profile is not None and profile not in profiles:
        raise UnknownProfile(profile, backend.name, profiles)
    if want is Want.REAL:
        _insist(backend, count, asked)
    return Plan(backend.name, index, count, nbytes, want, profile, surveys)


def parse(device: str) -> tuple[Backend, int]:
    """Read a device: "cuda:1" is the backend cuda and 1; without an index, 0.

    Raises:
        UnknownDevice: no backend of that name, or the index is no number.
    """
    name, colon, index = device.strip().partition(":")
    if colon and not (index.isascii() and index.isdigit()):
        known = [backend.name for backend in backends.all()]
        raise UnknownDevice(device, [f"{nearest(name, known) or name}:0", *known])
    try:
        return backends.find(name), int(index or 0)
    except UnknownDevice as err:
        raise UnknownDevice(device, err.known) from None


def _default(environ: Mapping[str, str]) -> str:
    named = environ.get("WHERRY_DEVICE", "auto")
    if named not in ("", "auto"):
        return named
    from wherry.pick import pick

    choice = pick()
    return choice.backend if choice.index is None else f"{choice.backend}:{choice.index}"


def _insist(backend: Backend, count: int, asked: str) -> None:
    presence: Presence = backend.probe()
    if presence.state is not State.PRESENT:
        raise DeviceAbsent(asked, presence.reason, broken=presence.state is State.BROKEN)
    if presence.count < count:
        noun = "device is" if presence.count == 1 else "devices are"
        raise DeviceAbsent(asked, f"{count} are asked for and {presence.count} {backend.title} {noun} here")
