"""`rehearse(device)`: a device that is not here, in this process, for the length of a `with` block.

A rehearsal has one dispatch mode per thread that takes part, one fleet of places (its devices), and counts of what
happened. While at least one rehearsal is on, the Python surface of torch is impersonated (`impersonate/`); each
impersonated name asks which rehearsal its own thread takes part in, and is the original for a thread in none. So
rehearsals nest, the same one may be entered again, and threads may rehearse different devices side by side.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from wherry import backends, units
from wherry.backends._backend import Backend, Profile
from wherry.errors import BadCount, BadSize, CannotRehearse, UnknownDevice, UnknownProfile
from wherry.events import Tally, Use
from wherry.rehearse import accounting, dtypes, randomness
from wherry.rehearse.absence import absent, invalid_ordinal
from wherry.rehearse.fallback import is_asked_for
from wherry.rehearse.limited import LimitedMode
from wherry.rehearse.mode import Mode
from wherry.rehearse.records import HOST, PINNED, UNMARKED
from wherry.rehearse.surface import current_mode, participation
from wherry.rehearse.survey import SurveyMode
from wherry.storage import ATTRIBUTE, Place, place_of

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a rehearsal has seen so far, all threads of this process together.

    Attributes:
        ops: How many.
        h2d_nbytes, d2h_nbytes, d2d_nbytes: Bytes that the program moved to the device, back, and between devices.
        fallbacks: Operators that went through the CPU, by line. Their bytes are not among those above.
        steps: How often an optimizer stepped.
        uses: What was called, by line, if that was asked for.
    """

    ops: int
    h2d_nbytes: int
    d2h_nbytes: int
    d2d_nbytes: int
    fallbacks: tuple[Use, ...] = ()
    steps: int = 0
    uses: tuple[Use, ...] = ()


class _Entries(threading.local):
    """How often this thread has entered a rehearsal, and what each time is to be undone."""

    def __init__(self) -> None:
        self.entries: list[contextlib.ExitStack] = []


class Rehearsal(contextlib.ContextDecorator):
    """A virtual device; made by `rehearse`. A context manager and a decorator, re-entrant.

    Attributes:
        backend: Whose device it is.
        count: How many of them there are.
        memory: Bytes that fit on each, or None for no limit.
        index: The one that a program is expected to use, from "cuda:1".
        profile: What the device says of itself.
        fallback: Whether operators without a kernel go through the CPU.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        count: int,
        memory: int | None,
        index: int,
        profile: str | None = None,
        falls_back: bool = False,
    ) -> None:
        self.backend = backend
        self.count = count
        self.memory = memory
        self.profile = Profile("CPU", 0) if backend.virtual is None else backend.virtual.profile(profile)
        self.index = index
        self.fallback = falls_back
        self.warned = False  # that an operator goes through the CPU
        self.fallbacks = Tally()
        self.narrow = bool(backend.wording.no_dtype or backend.wording.no_cast)
        """Whether its devices refuse tensors for their dtype."""
        self.h2d_nbytes = self.d2h_nbytes = self.d2d_nbytes = 0
        self.uses: Tally | None = None
        """What the program used, if that is to be noted."""
        self.steps = 0
        self.asks_who_listens = False
        """Whether a graph may hold a node that must not notice a mode (`impersonate.unobserved.quietly`)."""
        self.places: tuple[Place, ...] = ()
        if backend.name != "cpu":
            self.places = tuple(place_of(torch.device(backend.device_type, i)) for i in range(count))
        self._by_device: dict[object, Place] = {place.device: place for place in self.places}
        self._current = threading.local()
        self._modes: list[Mode] = []
        self._own = _Entries()

    def __repr__(self) -> str:
        return (
            f"<Rehearsal on {self.device}, {self.count} of them>" if self.count > 1 else f"<Rehearsal on {self.device}>"
        )

    @property
    def device(self) -> str:
        """The device a program is expected to use: "cuda:0", "mps:0", "cpu"."""
        return self.places[self.index].name if self.places else "cpu"

    def __enter__(self) -> Rehearsal:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._limits())
            stack.enter_context(self.taking_part())
            self._own.entries.append(stack.pop_all())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._own.entries.pop().__exit__(kind, error, trace)

    def _recreate_cm(self) -> Rehearsal:  # each call of a decorated function enters this same rehearsal
        return self

    @contextlib.contextmanager
    def taking_part(self) -> Iterator[Mode]:
        """Let the calling thread take part until the block ends, which may be after the thread that began it has left."""
        from wherry.rehearse import impersonate

        mode = (SurveyMode if self.uses is not None else LimitedMode if self.limited else Mode)(self)
        self._modes.append(mode)
        with _records_readable(), impersonate.installed(self.backend):
            try:
                with participation(mode):
                    impersonate.settle()
                    yield mode
            finally:
                impersonate.settle()

    @contextlib.contextmanager
    def _limits(self) -> Iterator[None]:
        dtypes.equip(self)
        before = accounting.begin(self)
        watch = register_optimizer_step_post_hook(self._stepped)
        try:
            yield
        finally:
            watch.remove()
            accounting.end(self, before)

    def _stepped(self, *_: object) -> None:
        mode = current_mode()
        if mode is not None and mode.session is self:
            self.steps += 1

    @property
    def limited(self) -> bool:
        """Whether memory may run out before the host's does."""
        return any(place.limit is not None for place in self.places)

    def statistics(self) -> Statistics:
        """Counts so far."""
        return Statistics(
            sum(mode.ops for mode in self._modes),
            self.h2d_nbytes,
            self.d2h_nbytes,
            self.d2d_nbytes,
            self.fallbacks.uses(),
            self.steps,
            () if self.uses is None else self.uses.uses(),
        )

    # -- devices

    @property
    def current_index(self) -> int:
        """The current device of the calling thread, as `torch.cuda.current_device()` says."""
        return getattr(self._current, "index", 0)

    @current_index.setter
    def current_index(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise invalid_ordinal(self.backend, index, self.count)
        self._current.index = index

    def resolve(self, device: torch.device | str | int, *, moving: bool = False) -> Place:
        """The place of a device as a program writes it.

        Raises:
            As the real backend does where the device is absent (`moving`: by `.to`; otherwise by an allocation) or has
            a smaller number of devices.
        """
        place = self._by_device.get(device)
        if place is not None:
            return place
        if isinstance(device, int):
            if self.places:
                device = torch.device(self.backend.device_type, device)
            else:
                raise RuntimeError("Cannot access accelerator device when none is available.")
        elif not isinstance(device, torch.device):
            device = torch.device(device)
        if device.type == "cpu":
            return HOST
        if not self.places or device.type != self.backend.device_type:
            raise absent(device.type, moving=moving)
        index = self.current_index if device.index is None else device.index
        if index >= self.count:
            raise invalid_ordinal(self.backend, index, self.count)
        return self.places[index]

    def pinned(self, place: Place) -> Place:
        """Where page-locked host memory resides, for a request at `place`."""
        if place.index is not None:
            raise RuntimeError("Only dense CPU tensors can be pinned")
        if not self.places or not self.backend.capabilities.pinned_memory:
            raise RuntimeError("Cannot access accelerator device when none is available.")
        return PINNED

    # -- movements

    def moved(self, source: Place, target: Place, tensors: Any) -> None:
        """Count the bytes of a movement."""
        if source.index is not None or target.index is not None:
            self.moved_bytes(source, target, sum(t.numel() * t.element_size() for t in _leaves(tensors)))

    def moved_bytes(self, source: Place, target: Place, nbytes: int) -> None:
        """Count a movement whose size is known."""
        if source.index is None and target.index is None:
            return
        if source.index is None:
            self.h2d_nbytes += nbytes
        elif target.index is None:
            self.d2h_nbytes += nbytes
        else:
            self.d2d_nbytes += nbytes


def _leaves(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)


_readers = 0
_readers_lock = threading.Lock()


@contextlib.contextmanager
def _records_readable() -> Iterator[None]:
    """While a rehearsal is on, every storage answers for its record: the class holds the one for those without."""
    global _readers
    with _readers_lock:
        _readers += 1
        setattr(torch.UntypedStorage, ATTRIBUTE, UNMARKED)
    try:
        yield
    finally:
        with _readers_lock:
            _readers -= 1
            if not _readers:
                delattr(torch.UntypedStorage, ATTRIBUTE)
                randomness.forget_default_generators()


def current() -> Rehearsal | None:
    """The rehearsal that the calling thread takes part in, the innermost one, or None."""
    mode = current_mode()
    return None if mode is None else mode.session


def rehearse(
    device: str | torch.device,
    count: int | None = None,
    memory: str | int | None = None,
    profile: str | None = None,
    fallback: bool | None = None,
) -> Rehearsal:
    """Rehearse a device that is not here.

    Inside, the program sees the device everywhere it looks, computes real values on the CPU, and fails where the device
    would. Use it as a context manager or as a decorator.

    >>> import torch, wherry
    >>> with wherry.rehearse("mps"):
    ...     torch.ones(2).to("mps").device
    device(type='mps', index=0)

    Args:
        device: The name of a backend ("cuda", "rocm", "mps", "xpu", "cpu"), or a device of it ("cuda:1").
        count: How many devices there are. Default: one, or as many as `device` needs.
        memory: What fits on each: "8GiB" or a number of bytes. Default: no limit, or what the profile has.
        profile: A model: "rtx4090", "mi250x", "m1", "a770". It decides name, properties and memory. Default: a common one.
        fallback: Whether operators without a kernel go through the CPU, with a warning and a count, instead of raising.
            Default: what the environment variable of the backend (PYTORCH_ENABLE_MPS_FALLBACK) said when torch was imported.

    Raises:
        UnknownDevice: No backend answers to `device`.
        BadVariable: That variable holds no number.
        BadCount: The backend cannot have that many devices.
        BadSize: `memory` names no number of bytes.
        UnknownProfile: The backend's file describes no such model.
        CannotRehearse: The backend has no virtual device.
    """
    name, colon, suffix = str(device).partition(":")
    backend = backends.find(name)
    if colon and not (suffix.isascii() and suffix.isdigit()):
        raise UnknownDevice(str(device), [f"{backend.name}:0"])
    if backend.virtual is None and backend.name != "cpu":
        raise CannotRehearse(str(device), f"the backend {backend.name} describes no virtual device")
    most = 1 if backend.virtual is None else backend.virtual.max_count
    index = int(suffix) if colon else 0
    if count is None:
        count = index + 1
    if isinstance(count, bool) or not isinstance(count, int) or not index < count <= most:
        raise BadCount(count, backend=backend.name, most=most)
    nbytes = units.parse_bytes(memory) if isinstance(memory, str) else memory
    if nbytes is not None and nbytes <= 0:
        raise BadSize(memory, "a device has more than that")
    profiles = {} if backend.virtual is None else backend.virtual.profiles
    if profile is not None and profile not in profiles:
        raise UnknownProfile(profile, backend.name, profiles)
    if profile is not None and nbytes is None:
        nbytes = profiles[profile].total_memory
    if fallback is None:
        fallback = is_asked_for(backend)
    return Rehearsal(backend, count=count, memory=nbytes, index=index, profile=profile, falls_back=fallback)
