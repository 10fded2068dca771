"""torch.cuda, torch.xpu, torch.mps, torch.accelerator and torch.backends of a machine that has the rehearsed device.

Most of these namespaces is Python over a few C functions, and torch's own Python is the best impersonation of itself:
it has this version's names, checks and warnings. So what is replaced is the bottom, C functions that builds without a
device do not even have, and the few names that are classes of C, or that keep what they were told for the life of the
process. For a rehearsal of another device the same names say that there is none, as on a machine of that kind.

    devices     which there are, which is current, what they say of themselves
    memory      statistics of the allocator
    streams     Stream and Event       graphs      captures
    libraries   cuDNN, NCCL and others refusals    what has no meaning here
    ordinals    device=1               tensor_types torch.cuda.FloatTensor
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from wherry.rehearse import randomness
from wherry.rehearse.impersonate import devices, graphs, libraries, memory, ordinals, refusals, streams, tensor_types
from wherry.rehearse.impersonate.patches import MISSING, Patch
from wherry.rehearse.impersonate.stand_ins import (
    Virtual,
    answer,
    bottom,
    class_for,
    copies_in,
    everywhere,
    nothing,
    on_type,
    replaced,
)
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

_NONE = "Cannot access accelerator device when none is available."


def _external(session: Rehearsal, pointer: int, index: int) -> tuple[int, int, int]:
    return (pointer, index, streams.TYPES[session.backend.device_type])


_CUDA: dict[str, Virtual] = {
    **devices.CUDA,
    **memory.CUDA,
    "_cuda_getDefaultStream": lambda session, index: streams.stream_triple(session, index, default=True),
    "_cuda_getCurrentStream": streams.stream_triple,
    "_cuda_getCurrentRawStream": lambda session, index: streams.current_stream(session, index).native_handle,
    "_cuda_getStreamFromExternal": _external,
    "_cuda_setStream": streams.set_stream_triple,
    "_cuda_isCurrentStreamCapturing": graphs.is_capturing,
    "_graph_pool_handle": graphs.pool_handle,
    "_cuda_beginAllocateCurrentThreadToPool": nothing,
    "_cuda_beginAllocateToPool": nothing,
    "_cuda_endAllocateToPool": nothing,
    "_cuda_releasePool": nothing,
}
_XPU: dict[str, Virtual] = {
    **devices.XPU,
    **memory.XPU,
    "_xpu_getCurrentStream": streams.stream_triple,
    "_xpu_getCurrentRawStream": lambda session, index: streams.current_stream(session, index).native_handle,
    "_xpu_getStreamFromExternal": _external,
    "_xpu_setStream": streams.set_stream_triple,
    "_xpu_isCurrentStreamCapturing": graphs.is_capturing,
    "_xpu_graph_pool_handle": graphs.pool_handle,
    "_xpu_beginAllocateCurrentThreadToPool": nothing,
    "_xpu_endAllocateToPool": nothing,
    "_xpu_releasePool": nothing,
}


# -- MPS


_MPS: dict[str, Virtual] = {
    **memory.MPS,
    "_mps_is_available": answer(True),
    "_mps_is_on_macos_or_newer": answer(True),
    "_mps_deviceSynchronize": nothing,
    "_mps_get_name": lambda session: session.profile.name,
    "_mps_get_core_count": lambda session: session.profile.properties.get("core_count", 8),
    "_mps_profilerStartTrace": nothing,
    "_mps_profilerStopTrace": nothing,
    "_mps_isCaptureEnabled": answer(False),
    "_mps_isCapturing": answer(False),
}

# Names that keep their answer for the life of the process, and what a machine without MPS says.
_MPS_KEPT: dict[str, tuple[Virtual, Virtual | None]] = {
    "is_built": (answer(True), answer(False)),
    "is_available": (answer(True), answer(False)),
    "is_macos_or_newer": (answer(True), answer(False)),
    "is_macos13_or_newer": (answer(True), answer(False)),
    "get_name": (_MPS["_mps_get_name"], None),
    "get_core_count": (_MPS["_mps_get_core_count"], None),
}


# -- torch.accelerator: whichever device is rehearsed


def _accelerator_type(session: Rehearsal, *_: Any) -> torch.device | None:
    return torch.device(session.backend.device_type) if session.places else None


def _set_generic_stream(session: Rehearsal, stream: Any) -> None:
    if not isinstance(stream, torch.Stream):
        raise TypeError(
            "_accelerator_setStream(): incompatible function arguments. The following argument types are supported:\n"
            f"    1. (arg0: torch.Stream) -> None\n\nInvoked with: {stream!r}"
        )
    if isinstance(stream, streams.Stream):
        streams.set_stream(session, stream)


_ACCELERATOR: dict[str, Virtual] = {
    **memory.ACCELERATOR,
    "_accelerator_getDeviceIndex": lambda session: session.current_index,
    "_accelerator_setDeviceIndex": lambda session, index: None if index < 0 else devices.set_current(session, index),
    "_accelerator_exchangeDevice": devices.exchange,
    "_accelerator_maybeExchangeDevice": devices.exchange,
    "_accelerator_synchronizeDevice": devices.synchronize,
    "_accelerator_getStream": streams.current_stream,
    "_accelerator_setStream": _set_generic_stream,
    "_accelerator_getDeviceCapability": devices.capability,
    "_accelerator_getDefaultGenerator": lambda session, index: randomness.default_generator(session.places[index]),
    "_accelerator_hooks_get_current_device": lambda session: session.current_index,
    "_accelerator_hooks_set_current_device": devices.set_current,
    "_accelerator_hooks_exchange_device": devices.exchange,
    "_accelerator_hooks_maybe_exchange_device": devices.exchange,
}
_ACCELERATOR_QUESTIONS: dict[str, Virtual] = {
    "_accelerator_getAccelerator": _accelerator_type,
    "_get_accelerator": lambda session, *_: _accelerator_type(session) or torch.device("cpu"),
    "_accelerator_deviceCount": lambda session: len(session.places),
    "_accelerator_hooks_device_count": lambda session: len(session.places),
}


def _accelerator(name: str, virtual: Virtual, *, asks: bool) -> Iterator[Patch]:
    """A stand-in for a C function of torch.accelerator; what only asks is answered where there is no device, too."""
    original = vars(torch._C).get(name, MISSING)
    if original is MISSING:
        return

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is None:
            return original(*args, **kwargs)
        if not mode.session.places and not asks:
            raise RuntimeError(_NONE)
        return virtual(mode.session, *args, **kwargs)

    yield Patch(torch._C, name, stand_in)


def patches() -> Iterator[Patch]:
    """Names of the device namespaces, where this torch has them."""
    yield from _namespace(torch.cuda, "cuda")
    yield from _namespace(torch.xpu, "xpu")
    yield from bottom(torch._C, "cuda", _CUDA)
    yield from bottom(torch._C, "xpu", _XPU)
    present = {name: virtual for name, virtual in _MPS.items() if hasattr(torch._C, name)}
    yield from bottom(torch._C, "mps", present)
    yield from _mps()
    for name, virtual in _ACCELERATOR.items():
        yield from _accelerator(name, virtual, asks=False)
    for name, virtual in _ACCELERATOR_QUESTIONS.items():
        yield from _accelerator(name, virtual, asks=True)
    if hasattr(torch.accelerator, "Graph"):
        yield from _class(torch.accelerator, "Graph", graphs.AcceleratorGraph, ("cuda", "xpu"))
    yield from replaced(torch.backends.cuda, "cuda", {"is_built": (answer(True), answer(False))})
    yield from _generic()
    yield from libraries.patches()
    yield from tensor_types.patches()
    yield from ordinals.patches()
    yield from refusals.patches()


def _generic() -> Iterator[Patch]:
    """torch.Stream and torch.Event."""
    every = ("cpu", "cuda", "xpu", "mps")
    yield Patch(torch, "Stream", class_for(every, streams.Stream, torch.Stream, make=streams.generic_stream))
    yield Patch(torch, "Event", class_for(every, streams.Event, torch.Event, make=streams.generic_event))


def _namespace(module: ModuleType, device_type: str) -> Iterator[Patch]:
    """torch.cuda and torch.xpu have one shape."""
    package = module.__name__
    table = dict(devices.QUESTIONS)
    table["_lazy_init"] = (devices.start, devices.refuse(device_type))
    table["device_memory_used"] = (memory.memory_used, None)
    table |= devices.EXCHANGES
    yield from replaced(module, device_type, table, also=package)
    copies = copies_in(package)
    for name, virtual in (_CUDA if device_type == "cuda" else _XPU).items():  # some modules took C functions by name
        original = vars(torch._C).get(name, MISSING)
        for owner, other in copies.get(id(original), ()) if original is not MISSING else ():
            yield Patch(owner, other, on_type(device_type, original, virtual, name=name))
    own = streams.CudaStream if device_type == "cuda" else streams.XpuStream
    event = streams.CudaEvent if device_type == "cuda" else streams.XpuEvent
    graph = ("CUDAGraph", graphs.Graph) if device_type == "cuda" else ("XPUGraph", graphs.XpuGraph)
    for name, virtual in (
        ("Stream", own),
        ("ExternalStream", streams.ExternalStream),
        ("Event", event),
        graph,
        ("MemPool", memory.MemPool),
        ("MemPoolContext", memory.MemPoolContext),
    ):
        if hasattr(module, name):
            yield from _class(module, name, virtual, (device_type,))
    yield Patch(module, "default_generators", devices.generators(device_type, vars(module)["default_generators"]))


def _class(module: ModuleType, name: str, virtual: type, device_types: tuple[str, ...]) -> Iterator[Patch]:
    original = getattr(module, name)
    yield from everywhere(
        module, name, original, class_for(device_types, virtual, original), copies_in(module.__name__)
    )


def _mps_generator(session: Rehearsal) -> Any:
    return randomness.default_generator(session.places[0])


def _mps() -> Iterator[Patch]:
    questions = {"is_available": (answer(True), answer(False)), "device_count": (answer(1), answer(0))}
    questions["_get_default_mps_generator"] = (_mps_generator, None)  # the original keeps what it was given
    questions["manual_seed"] = (lambda session, seed: _mps_generator(session).manual_seed(int(seed)), None)
    yield from replaced(torch.mps, "mps", questions, also="torch.mps")
    yield from replaced(torch.backends.mps, "mps", _MPS_KEPT, also="torch.backends.mps")
    yield from _class(torch.mps, "Event", streams.MpsEvent, ("mps",))
