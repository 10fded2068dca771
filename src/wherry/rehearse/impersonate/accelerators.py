"""torch.cuda, torch.xpu, torch.mps, torch.accelerator and torch.backends of a machine that has the rehearsed device.

The namespaces of CUDA and XPU have one shape, so one table serves both; a backend says in its file what its devices
answer. For a rehearsal of another device the same names say that there is none, as on a machine of that kind.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from wherry.rehearse import randomness
from wherry.rehearse.absence import absent
from wherry.rehearse.impersonate import streams
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

Virtual = Callable[..., Any]


# -- which device


def index_of(session: Rehearsal, device: Any = None, *, optional: bool = True) -> int:
    """The index that an argument "device" of these functions means: None, an int, a string or a torch.device."""
    if device is None:
        if not optional:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        return session.current_index
    if isinstance(device, int):
        return session.current_index if device < 0 else device
    device = torch.device(device) if isinstance(device, str) else device
    if device.type != session.backend.device_type:
        raise ValueError(f"Expected a {session.backend.device_type} device, but got: {device}")
    return session.current_index if device.index is None else device.index


def set_device(session: Rehearsal, device: Any) -> None:
    index = index_of(session, device)
    if not (isinstance(device, int) and device < 0):
        session.current_index = index


class DeviceContext:
    """`with torch.cuda.device(1)`: that device is current until the block ends."""

    def __init__(self, device: Any) -> None:
        self.idx = index_of(thread.mode.session, device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        session = thread.mode.session
        self.prev_idx = session.current_index
        session.current_index = self.idx

    def __exit__(self, *_: object) -> bool:
        thread.mode.session.current_index = self.prev_idx
        return False


class DeviceOf(DeviceContext):
    """`with torch.cuda.device_of(x)`: the device where x is."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type != "cpu" else -1)


def _checked_index(session: Rehearsal, device: Any) -> int:
    index = index_of(session, device)
    if not 0 <= index < session.count:
        raise AssertionError("Invalid device id")
    return index


def device_properties(session: Rehearsal, device: Any = None) -> SimpleNamespace:
    _checked_index(session, device)
    virtual = session.backend.virtual
    assert virtual is not None
    return _Properties(name=virtual.name, total_memory=session.memory or virtual.total_memory, **virtual.properties)


class _Properties(SimpleNamespace):
    def __repr__(self) -> str:
        fields = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"_CudaDeviceProperties({fields})"


def device_name(session: Rehearsal, device: Any = None) -> str:
    return device_properties(session, device).name


def device_capability(session: Rehearsal, device: Any = None) -> Any:
    properties = device_properties(session, device)
    if session.backend.device_type != "cuda":
        return dict(vars(properties))
    return (properties.major, properties.minor)


def can_access_peer(session: Rehearsal, device: Any, peer_device: Any) -> bool:
    return _checked_index(session, device) != _checked_index(session, peer_device)


# -- memory


def _place(session: Rehearsal, device: Any = None) -> Any:
    return session.places[_checked_index(session, device)]


def mem_get_info(session: Rehearsal, device: Any = None) -> tuple[int, int]:
    place = _place(session, device)
    total = device_properties(session, device).total_memory
    return (max(total - place.allocated, 0), total)


def memory_allocated(session: Rehearsal, device: Any = None) -> int:
    return _place(session, device).allocated


def max_memory_allocated(session: Rehearsal, device: Any = None) -> int:
    return _place(session, device).peak


def reset_peak(session: Rehearsal, device: Any = None) -> None:
    _place(session, device).reset_peak()


def memory_stats(session: Rehearsal, device: Any = None) -> dict[str, int]:
    place = _place(session, device)
    stats: dict[str, int] = {}
    counters = {
        "allocated_bytes": (place.allocated, place.peak, 0, 0),
        "reserved_bytes": (place.allocated, place.peak, 0, 0),
        "active_bytes": (place.allocated, place.peak, 0, 0),
        "requested_bytes": (place.allocated, place.peak, 0, 0),
    }
    for name, values in counters.items():
        for kind, value in zip(("current", "peak", "allocated", "freed"), values, strict=True):
            stats[f"{name}.all.{kind}"] = value
    stats |= {"num_alloc_retries": 0, "num_ooms": 0, "num_device_alloc": 0, "num_device_free": 0}
    return stats


def memory_summary(session: Rehearsal, device: Any = None, abbreviated: bool = False) -> str:
    place = _place(session, device)
    return (
        f"{place.name} (virtual): {place.allocated} bytes allocated now, {place.peak} at most, "
        f"{place.allocations} allocations so far"
    )


# -- random numbers


def _generator(session: Rehearsal, device: Any = None) -> Any:
    return randomness.default_generator(_place(session, device))


def manual_seed(session: Rehearsal, seed: int) -> None:
    _generator(session).manual_seed(seed)


def manual_seed_all(session: Rehearsal, seed: int) -> None:
    randomness.seed_all(session.backend.device_type, session.count, seed)


def reseed(session: Rehearsal) -> None:
    _generator(session).seed()


def reseed_all(session: Rehearsal) -> None:
    manual_seed_all(session, _generator(session).seed())


def initial_seed(session: Rehearsal) -> int:
    return _generator(session).initial_seed()


def get_rng_state(session: Rehearsal, device: Any = None) -> torch.Tensor:
    return _generator(session, device).get_state()


def get_rng_state_all(session: Rehearsal) -> list[torch.Tensor]:
    return [get_rng_state(session, index) for index in range(session.count)]


def set_rng_state(session: Rehearsal, new_state: torch.Tensor, device: Any = None) -> None:
    _generator(session, device).set_state(new_state.cpu())


def set_rng_state_all(session: Rehearsal, new_states: Any) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(session, state, index)


def mps_manual_seed(session: Rehearsal, seed: int) -> None:
    # As in torch/mps/__init__.py: the default generator of the one device.
    _generator(session).manual_seed(int(seed))


# -- the rest


def _nothing(session: Rehearsal, *_: Any, **__: Any) -> None:
    """Work that a rehearsal has already done, or has no equivalent of: synchronize, empty_cache, init."""


def _answer(value: Any) -> Virtual:
    return lambda session, *args, **kwargs: value


def _of_type(device_type: str, when_there: Virtual, otherwise: Virtual | None) -> Callable[[Any], Any]:
    """A stand-in that is `when_there` in a rehearsal of that device type, and else `otherwise` or the original."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            mode = thread.mode
            if mode is None:
                return original(*args, **kwargs)
            if mode.session.backend.device_type == device_type:
                return when_there(mode.session, *args, **kwargs)
            if otherwise is None:
                return original(*args, **kwargs)
            return otherwise(mode.session, *args, **kwargs)

        return stand_in

    return wrap


def _refuse(device_type: str) -> Virtual:
    def refuse(session: Rehearsal, *_: Any, **__: Any) -> Any:
        raise absent(device_type)

    return refuse


def _class_for(device_type: str, virtual: type, original: type) -> type:
    """A class whose instances are virtual in a rehearsal of that device type; `isinstance` knows both kinds."""

    class Type(type(original)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            mode = thread.mode
            if cls is stand_in:
                if mode is not None and mode.session.backend.device_type == device_type:
                    return virtual(*args, **kwargs)
                return original(*args, **kwargs)
            return super().__call__(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, (virtual, original)) if cls is stand_in else super().__instancecheck__(instance)

    stand_in = Type(original.__name__, (original,), {"__module__": original.__module__, "__doc__": original.__doc__})
    return stand_in


# name -> what it does where the device is there, and where another one is rehearsed (None: what this torch says)
_SHARED: dict[str, tuple[Virtual, Virtual | None]] = {
    "is_available": (_answer(True), _answer(False)),
    "device_count": (lambda session: session.count, _answer(0)),
    "is_initialized": (_answer(True), _answer(False)),
    "_is_compiled": (_answer(True), _answer(False)),
    "_lazy_init": (_nothing, None),
    "init": (_nothing, None),
    "current_device": (lambda session: session.current_index, None),
    "set_device": (set_device, None),
    "synchronize": (_nothing, None),
    "get_device_name": (device_name, None),
    "get_device_properties": (device_properties, None),
    "get_device_capability": (device_capability, None),
    "can_device_access_peer": (can_access_peer, None),
    "is_bf16_supported": (_answer(True), None),
    "get_arch_list": (lambda session: list(session.backend.virtual.properties.get("arch_list", ())), None),
    "mem_get_info": (mem_get_info, None),
    "memory_allocated": (memory_allocated, None),
    "max_memory_allocated": (max_memory_allocated, None),
    "memory_reserved": (memory_allocated, None),
    "max_memory_reserved": (max_memory_allocated, None),
    "memory_cached": (memory_allocated, None),
    "max_memory_cached": (max_memory_allocated, None),
    "reset_peak_memory_stats": (reset_peak, None),
    "reset_accumulated_memory_stats": (_nothing, None),
    "reset_max_memory_allocated": (reset_peak, None),
    "reset_max_memory_cached": (reset_peak, None),
    "memory_stats": (memory_stats, None),
    "memory_summary": (memory_summary, None),
    "empty_cache": (_nothing, None),
    "ipc_collect": (_nothing, None),
    "set_per_process_memory_fraction": (_nothing, None),
    "current_stream": (streams.current_stream, None),
    "default_stream": (streams.default_stream, None),
    "set_stream": (streams.set_stream, None),
    "stream": (lambda session, stream: streams.StreamContext(stream), None),
    "is_current_stream_capturing": (_answer(False), None),
    "manual_seed": (manual_seed, None),
    "manual_seed_all": (manual_seed_all, None),
    "seed": (reseed, None),
    "seed_all": (reseed_all, None),
    "initial_seed": (initial_seed, None),
    "get_rng_state": (get_rng_state, None),
    "get_rng_state_all": (get_rng_state_all, None),
    "set_rng_state": (set_rng_state, None),
    "set_rng_state_all": (set_rng_state_all, None),
}

_MPS: dict[str, tuple[Virtual, Virtual | None]] = {
    "is_available": (_answer(True), _answer(False)),
    "device_count": (_answer(1), _answer(0)),
    "synchronize": (_nothing, None),
    "empty_cache": (_nothing, None),
    "set_per_process_memory_fraction": (_nothing, None),
    "current_allocated_memory": (memory_allocated, None),
    "driver_allocated_memory": (memory_allocated, None),
    "recommended_max_memory": (lambda session: device_properties(session).total_memory, None),
    "manual_seed": (mps_manual_seed, None),
    "seed": (reseed, None),
    "get_rng_state": (get_rng_state, None),
    "set_rng_state": (set_rng_state, None),
}


def _accelerator(virtual: Virtual) -> Callable[[Any], Any]:
    """A stand-in for a name of torch.accelerator: whichever device is rehearsed, or none under "cpu"."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            mode = thread.mode
            if mode is None:
                return original(*args, **kwargs)
            if not mode.session.places:
                raise RuntimeError("Cannot access accelerator device when none is available.")
            return virtual(mode.session, *args, **kwargs)

        return stand_in

    return wrap


def _accelerator_question(virtual: Virtual) -> Callable[[Any], Any]:
    """As `_accelerator`, for the questions that have an answer on a machine without one."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            mode = thread.mode
            return original(*args, **kwargs) if mode is None else virtual(mode.session, *args, **kwargs)

        return stand_in

    return wrap


def current_accelerator(session: Rehearsal, check_available: bool = False) -> torch.device | None:
    return torch.device(session.backend.device_type) if session.places else None


_ACCELERATOR: dict[str, Virtual] = {
    "current_device_index": lambda session: session.current_index,
    "current_device_idx": lambda session: session.current_index,
    "set_device_index": set_device,
    "set_device_idx": set_device,
    "device_index": lambda session, device: DeviceContext(-1 if device is None else device),
    "synchronize": _nothing,
    "current_stream": streams.current_stream,
    "set_stream": streams.set_stream,
    "empty_cache": _nothing,
    "empty_host_cache": _nothing,
    "memory_allocated": memory_allocated,
    "max_memory_allocated": max_memory_allocated,
    "memory_reserved": memory_allocated,
    "max_memory_reserved": max_memory_allocated,
    "memory_stats": memory_stats,
    "reset_peak_memory_stats": reset_peak,
    "reset_accumulated_memory_stats": _nothing,
    "get_memory_info": mem_get_info,
}
_ACCELERATOR_QUESTIONS: dict[str, Virtual] = {
    "is_available": lambda session: bool(session.places),
    "device_count": lambda session: len(session.places),
    "current_accelerator": current_accelerator,
}


def patches() -> Iterator[Patch]:
    """Names of the device namespaces, where this torch has them."""
    for device_type in ("cuda", "xpu"):
        yield from _namespace(importlib.import_module(f"torch.{device_type}"), device_type)
    yield from _stand_ins(torch.mps, "mps", _MPS)
    yield Patch(torch.mps.event, "Event", _class_for("mps", streams.MpsEvent, torch.mps.event.Event))
    yield Patch(torch.mps, "Event", _class_for("mps", streams.MpsEvent, torch.mps.Event))

    for name, virtual in _ACCELERATOR.items():
        if hasattr(torch.accelerator, name):
            yield Patch(torch.accelerator, name, _accelerator(virtual)(getattr(torch.accelerator, name)))
    for name, virtual in _ACCELERATOR_QUESTIONS.items():
        yield Patch(torch.accelerator, name, _accelerator_question(virtual)(getattr(torch.accelerator, name)))

    for module, device_type, names in (
        (torch.backends.cuda, "cuda", ("is_built",)),
        (torch.backends.mps, "mps", ("is_built", "is_available", "is_macos_or_newer", "is_macos13_or_newer")),
    ):
        answers = {name: (_answer(True), _answer(False)) for name in names}
        yield from _stand_ins(module, device_type, answers)
    yield from _stand_ins(torch.backends.cudnn, "cuda", {"is_available": (_answer(True), _answer(False))})


def _namespace(module: ModuleType, device_type: str) -> Iterator[Patch]:
    table = dict(_SHARED)
    table["_lazy_init"] = (_nothing, _refuse(device_type))
    yield from _stand_ins(module, device_type, table)
    for name, virtual in (("device", DeviceContext), ("device_of", DeviceOf), ("Stream", streams.Stream), ("Event", streams.Event)):
        yield Patch(module, name, _class_for(device_type, virtual, getattr(module, name)))
    yield from _copies_in_submodules(module, device_type, table)


def _stand_ins(module: ModuleType, device_type: str, table: dict[str, tuple[Virtual, Virtual | None]]) -> Iterator[Patch]:
    for name, (there, otherwise) in table.items():
        original = vars(module).get(name)
        if original is not None:
            yield Patch(module, name, _of_type(device_type, there, otherwise)(original))


def _copies_in_submodules(
    module: ModuleType, device_type: str, table: dict[str, tuple[Virtual, Virtual | None]]
) -> Iterator[Patch]:
    """`torch.cuda.random` and `torch.cuda.memory` hold the same functions under the same names."""
    for part in ("random", "memory"):
        inner = vars(module).get(part)
        if isinstance(inner, ModuleType):
            for name in table:
                if vars(inner).get(name) is not None and vars(inner).get(name) is vars(module).get(name):
                    there, otherwise = table[name]
                    yield Patch(inner, name, _of_type(device_type, there, otherwise)(vars(inner)[name]))
