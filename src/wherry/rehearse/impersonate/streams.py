"""Streams and events of a virtual device.

A rehearsal computes each op before it returns, so every stream is always idle and every event that was recorded has
happened. What remains is what programs look at: which stream is current on which device, identity, priorities and
handles, times between events that are those of the wall clock, and what is refused.

A virtual stream is a real `torch.Stream` of the CPU, so that `isinstance` and PyTorch's C++ accept it. What it answers
with was asked of the CUDA build's own code on stand-in libraries: the numbers of streams, the words of the errors.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from wherry.rehearse.state import state_of
from wherry.rehearse.surface import thread
from wherry.rehearse.wording import torch_release

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal
    from wherry.storage import Place

TYPES = {"cpu": 0, "cuda": 1, "xpu": 12, "mps": 13}  # c10/core/DeviceType.h
_POOL = 32  # streams of one priority on one device, handed out in turn (c10/cuda/CUDAStream.cpp)

_RealStream = torch.Stream
_RealEvent = torch.Event


def index_of(session: Rehearsal, device: Any) -> int:
    """The index that an argument "device" of these constructors means: None, an int, a string or a torch.device."""
    if device is None:
        return session.current_index
    if isinstance(device, int):
        return session.current_index if device < 0 else session.resolve(device).index or 0
    device = torch.device(device)
    if device.type != session.backend.device_type:
        raise ValueError(f"Expected a {session.backend.device_type} device, but got: {device}")
    return session.resolve(device).index or 0


class Stream(_RealStream):
    """A queue of work on one virtual device; number 0 is the default stream of a device."""

    _place: Place
    _number: int
    _priority: int

    def __new__(cls, device: Any = None, priority: int = 0, **known: Any) -> Stream:
        session = thread.mode.session  # type: ignore[union-attr]
        self: Stream = super().__new__(cls, device="cpu")
        state_of(session).started = True
        if "stream_id" in known:
            self._place = session.places[known["device_index"]]
            self._number = known["stream_id"]
            self._priority = known.get("priority", _priority_of(self._number))
            return self
        index = index_of(session, device)
        highest = 0 if session.backend.device_type == "mps" else -3 if session.backend.device_type == "cuda" else -1
        self._place = session.places[index]
        self._priority = min(max(int(priority), highest), 0)
        pool = state_of(session).pools.setdefault((index, self._priority), itertools.count())
        # c10/cuda/CUDAStream.cpp, StreamId: the lowest bit is set, then four of kind and priority, then the place in the pool.
        self._number = (next(pool) % _POOL) << 5 | (1 - self._priority) << 1 | 1
        return self

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    @property
    def device(self) -> torch.device:
        return self._place.device

    @property
    def device_index(self) -> int:
        return self._place.index or 0

    @property
    def device_type(self) -> int:
        return TYPES.get(self._place.type, 20)

    @property
    def stream_id(self) -> int:
        return self._number

    @property
    def priority(self) -> int:
        return self._priority

    @property
    def native_handle(self) -> int:
        """What a C library would be given. No such queue exists, so it must not be used as one."""
        return _handle(self._place, self._number)

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        from wherry.rehearse.impersonate.graphs import capturing

        return capturing()

    def synchronize(self) -> None:
        if self.is_capturing():
            from wherry.rehearse.impersonate.graphs import not_permitted

            raise not_permitted()

    def wait_event(self, event: Any) -> None:
        _expect(event, "wait")
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        _expect(stream, "record_event")
        stream.record_event()

    def record_event(self, event: Any = None) -> Any:
        if event is None:
            event = _event_class(type(self))()
        _expect(event, "record")
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        session = thread.mode.session  # type: ignore[union-attr]
        before = (session.current_index, current_stream(session, self._place.index))
        state_of(session).streams.entered.append(before)
        set_stream(session, self)
        return self

    def __exit__(self, *_: object) -> None:
        session = thread.mode.session  # type: ignore[union-attr]
        index, stream = state_of(session).streams.entered.pop()
        set_stream(session, stream)
        session.current_index = index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream) or type(self) is not type(other):
            return False
        return self._place is other._place and self._number == other._number

    def __ne__(self, other: object) -> bool:  # the one of C would compare what both really are
        return not self == other

    def __hash__(self) -> int:
        return hash((self._number, self._place.name))

    def __repr__(self) -> str:
        return (
            f"torch.Stream device_type={self._place.type}, device_index={self._place.index}, stream_id={self._number}"
        )


def _expect(value: object, method: str) -> None:
    """The C++ and Python code of the real classes calls this method of what it is given, whatever that is."""
    if not hasattr(value, method):
        raise AttributeError(f"'{type(value).__name__}' object has no attribute '{method}'")


def _priority_of(number: int) -> int:
    return 1 - ((number & 0x1F) >> 1) if number & 1 else 0


def _handle(place: Place, number: int) -> int:
    """A number unlike any other stream's; 0 is the default stream's, an external stream's is what the program gave."""
    if number == 0 or not number & 1:
        return number
    return 0x5000 + (place.index or 0) * 0x10000 + number * 0x10


class CudaStream(Stream):
    """torch.cuda.Stream."""

    @property
    def cuda_stream(self) -> int:
        return _handle(self._place, self._number)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.cuda_stream)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, -3)

    __hash__ = Stream.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaStream) and self._place is other._place and self._number == other._number

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(CudaStream):
    """torch.cuda.ExternalStream: a stream that another library made."""

    def __new__(cls, stream_ptr: int, device: Any = None, **_: Any) -> ExternalStream:
        session = thread.mode.session  # type: ignore[union-attr]
        self: Any = super().__new__(cls, stream_id=int(stream_ptr), device_index=index_of(session, device))
        return self


class XpuStream(Stream):
    """torch.xpu.Stream."""

    @property
    def sycl_queue(self) -> int:
        return _handle(self._place, self._number)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.sycl_queue)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, -1)

    __hash__ = Stream.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, XpuStream) and self._place is other._place and self._number == other._number

    def __repr__(self) -> str:
        return f"torch.xpu.Stream(device={self.device} sycl_queue={self.sycl_queue:#x})"


class Event(_RealEvent):
    """A point in a stream. It has happened once it was recorded."""

    _CLASS = "torch.Event"

    _timing: bool
    _at: float | None
    _place: Place | None
    _number: int

    def __new__(
        cls,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Event:
        return cls._make(enable_timing)

    @classmethod
    def _make(cls, enable_timing: object) -> Any:
        self = _RealEvent.__new__(cls, device="cpu")
        self._timing = bool(enable_timing)
        self._at = self._place = None
        self._number = 0
        return self

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        return self._place.device if self._place is not None else torch.device(_device_type())

    @property
    def event_id(self) -> int:
        return self._number

    def record(self, stream: Any = None) -> None:
        session = thread.mode.session  # type: ignore[union-attr]
        place = self._place_to_record(session, stream)
        if self._place is not None and self._place is not place:
            raise _wrong_device(self._place, place)
        if self._place is None:
            self._place = place
            self._number = 0x2000 + 0x10 * next(state_of(session).numbers)
        self._at = time.perf_counter()

    def _place_to_record(self, session: Rehearsal, stream: Any) -> Place:
        if stream is None:
            return session.places[session.current_index]
        if not isinstance(stream, _RealStream):
            raise self._no_stream()
        if not isinstance(stream, Stream):
            raise RuntimeError(  # noqa: TRY004 - the class is the real one's
                f"Event device type {_device_type().upper()} does not match recording stream's device type "
                f"{stream.device.type.upper()}."
            )
        return stream._place

    def _no_stream(self) -> Exception:
        return TypeError("expected a torch.Stream")

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        if stream is not None and not isinstance(stream, _RealStream):
            raise self._no_stream()

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds between two recorded events."""
        if not isinstance(end_event, Event):
            raise self._no_event()
        if not (self._timing and end_event._timing):
            raise _untimed()
        if self._at is None or end_event._at is None:
            raise _unrecorded()
        return (end_event._at - self._at) * 1e3

    def _no_event(self) -> Exception:
        return TypeError("elapsed_time(): argument must be a torch.Event")

    def ipc_handle(self) -> bytes:
        raise _no_ipc(f"{self._CLASS}.ipc_handle")

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> Any:
        raise _no_ipc(f"{cls._CLASS}.from_ipc_handle")

    def __repr__(self) -> str:
        index = -1 if self._place is None else self._place.index
        return (
            f"torch.Event device_type={_device_type()}, device_index={index}, event_flag={int(self._timing)}, "
            f"event_id={self._number}"
        )


def _wrong_device(own: Place, other: Place) -> Exception:
    """The real text has the indices as bytes, and ends where one of them is zero (c10/cuda/CUDAEvent.h, DeviceIndex)."""
    text = f"Event device {chr(own.index or 0)} does not match recording stream's device {chr(other.index or 0)}."
    return RuntimeError(text.partition("\0")[0])


def _device_type() -> str:
    return thread.mode.session.backend.device_type if thread.mode is not None else "cpu"


def _untimed() -> Exception:
    """Since 2.8 PyTorch asks first; before, the driver refused."""
    if torch_release() < (2, 8):
        return RuntimeError("CUDA error: invalid resource handle")
    return ValueError("Both events must be created with argument 'enable_timing=True'.")


def _unrecorded() -> Exception:
    if torch_release() < (2, 8):
        return RuntimeError("Both events must be recorded before calculating elapsed time.")
    return ValueError("Both events must be recorded before calculating elapsed time.")


def _no_ipc(name: str) -> Exception:
    from wherry.rehearse.impersonate.refusals import cannot

    return cannot(name, "an event of a virtual device is known to its own process only")


class _NamedEvent(Event):
    """The event class of a namespace, whose flags are positional."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> Any:
        return cls._make(enable_timing)

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        return None if self._place is None else self._place.device

    def _no_stream(self) -> Exception:
        return RuntimeError(f"expected stream to be a torch.Stream or {self._CLASS.replace('Event', 'Stream')} object")

    def _no_event(self) -> Exception:
        return RuntimeError(f"expected other to be a {self._CLASS} object")


class CudaEvent(_NamedEvent):
    """torch.cuda.Event."""

    _CLASS = "torch.cuda.Event"

    @property
    def cuda_event(self) -> int:
        return self._number

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._number)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self._number:#x}>" if self._number else "<torch.cuda.Event uninitialized>"


class XpuEvent(_NamedEvent):
    """torch.xpu.Event."""

    _CLASS = "torch.xpu.Event"

    @property
    def sycl_event(self) -> int:
        return self._number

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._number)

    def __repr__(self) -> str:
        return f"torch.xpu.Event(sycl_event={self._number:#x})" if self._number else "torch.xpu.Event(uninitialized)"


class MpsEvent(_NamedEvent):
    """torch.mps.Event, for the one stream there is."""

    _CLASS = "torch.mps.Event"

    def record(self) -> None:  # type: ignore[override]
        super().record()

    def wait(self) -> None:  # type: ignore[override]
        super().wait()

    def __repr__(self) -> str:
        return object.__repr__(self)


_NamedEvent.__new__.__qualname__ = "Event.__new__"  # what an unknown argument's error says


def _event_class(stream_class: type[Stream]) -> type[Event]:
    return (
        CudaEvent
        if issubclass(stream_class, CudaStream)
        else XpuEvent
        if issubclass(stream_class, XpuStream)
        else Event
    )


# -- torch.Stream and torch.Event themselves, which take any device


def generic_stream(device: Any = None, priority: int = 0, **known: Any) -> Any:
    """torch.Stream(device, priority): of the rehearsed device unless another is named."""
    return _generic(_RealStream, Stream, device, known, lambda d: Stream(d, priority, **known))


def generic_event(device: Any = None, **flags: Any) -> Any:
    """torch.Event(device, enable_timing=...)."""
    return _generic(_RealEvent, Event, device, flags, lambda d: Event(d, **flags))


def _generic(real: Any, virtual: type, device: Any, kwargs: dict[str, Any], make: Callable[[Any], Any]) -> Any:
    session = thread.mode.session  # type: ignore[union-attr]
    if device is None and "stream_id" in kwargs and TYPES.get(session.backend.device_type) != kwargs["device_type"]:
        return real(**kwargs)
    named = None if device is None or isinstance(device, int) else torch.device(device).type
    if named == "cpu":
        return real(device, **kwargs)
    if named not in (None, session.backend.device_type):
        raise RuntimeError(f"PyTorch is not linked with support for {named} devices")
    if not session.places:
        return real(**kwargs) if device is None else real(device, **kwargs)
    return make(device)


# -- which stream is current


def stream_triple(session: Rehearsal, index: int, *, default: bool = False) -> tuple[int, int, int]:
    """What the C functions say of a stream: its number, its device's index, its device type."""
    _check(session, index)
    number = 0 if default else current_stream(session, index)._number
    return (number, index, TYPES[session.backend.device_type])


def _check(session: Rehearsal, index: int) -> None:
    if not 0 <= index < session.count:
        raise RuntimeError(f"Device index value {index} is out of index range [0, {session.count})")


def current_stream(session: Rehearsal, index: int | None = None) -> Stream:
    """The stream that the calling thread uses on a device, as a torch.Stream."""
    index = session.current_index if index is None else index
    return state_of(session).streams.current.get(index) or _default(session, index)


def _default(session: Rehearsal, index: int) -> Stream:
    return Stream(stream_id=0, device_index=index)


def set_stream(session: Rehearsal, stream: Stream) -> None:
    """Use a stream on its device from now on, in this thread; its device becomes the current one."""
    index = stream._place.index or 0
    session.current_index = index
    state_of(session).streams.current[index] = stream


def set_stream_triple(session: Rehearsal, stream_id: int, device_index: int, device_type: int) -> None:
    """`torch._C._cuda_setStream`."""
    set_stream(session, Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))
