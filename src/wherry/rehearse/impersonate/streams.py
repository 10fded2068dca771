"""Streams and events of a virtual device.

A rehearsal computes each op before it returns, so every stream is always idle and every event that was recorded has
happened. What remains is bookkeeping that programs check: which stream is current on which device, identity and
equality, and times between events that are those of the wall clock.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

_numbers = itertools.count(1)


class Stream:
    """A queue of work on one virtual device; 0 is the default stream of a device."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        mode = thread.mode
        assert mode is not None
        self._place = _place(mode.session, device)
        self.priority = priority
        self.stream_id = next(_numbers)

    @classmethod
    def default(cls, session: Rehearsal, device: Any = None) -> Stream:
        self = cls.__new__(cls)
        self._place = _place(session, device)
        self.priority = 0
        self.stream_id = 0
        return self

    @property
    def device(self) -> torch.device:
        return self._place.device

    @property
    def device_index(self) -> int:
        return self._place.index

    @property
    def device_type(self) -> int:
        return {"cuda": 1, "mps": 13, "xpu": 12}.get(self._place.type, 20)  # c10/core/DeviceType.h

    @property
    def cuda_stream(self) -> int:
        return self.stream_id

    sycl_queue = cuda_stream

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass

    def wait_stream(self, stream: Stream) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before = current_stream(thread.mode.session, self._place.index)
        set_stream(thread.mode.session, self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(thread.mode.session, self._before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._place, self.stream_id) == (other._place, other.stream_id)

    def __hash__(self) -> int:
        return hash((self._place.name, self.stream_id))

    def __repr__(self) -> str:
        return f"torch.{self._place.type}.Stream(device={self.device}, stream_id={self.stream_id})"


class Event:
    """A point in a stream. It has happened once it was recorded."""

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> None:
        self.enable_timing = enable_timing
        self._at: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        self._at = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait(self, stream: Stream | None = None) -> None:
        pass

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two recorded events."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1e3

    def __repr__(self) -> str:
        return f"torch.Event(recorded={self._at is not None})"


class MpsEvent(Event):
    """torch.mps.Event, whose timing argument is positional."""

    def __init__(self, enable_timing: bool = False) -> None:
        super().__init__(enable_timing=enable_timing)


class StreamContext:
    """`with torch.cuda.stream(s)`: s is current until the block ends; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


class _Current(threading.local):
    streams: dict[tuple[str, int], Stream]

    def __init__(self) -> None:
        self.streams = {}


_current = _Current()


def _place(session: Rehearsal, device: Any) -> Any:
    if device is None:
        return session.places[session.current_index]
    if isinstance(device, int):
        return session.resolve(torch.device(session.backend.device_type, device))
    return session.resolve(device)


def current_stream(session: Rehearsal, device: Any = None) -> Stream:
    """The stream that the calling thread uses on a device."""
    place = _place(session, device)
    return _current.streams.get((place.type, place.index)) or Stream.default(session, place.index)


def default_stream(session: Rehearsal, device: Any = None) -> Stream:
    """The stream that a device starts with."""
    return Stream.default(session, device)


def set_stream(session: Rehearsal, stream: Stream | None) -> None:
    """Use a stream on its device from now on, in this thread."""
    if stream is not None:
        _current.streams[stream._place.type, stream._place.index] = stream
