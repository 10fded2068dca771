"""Which devices there are, which is current, and what they say of themselves: torch.cuda, torch.xpu and torch.accelerator."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from wherry.rehearse.absence import absent
from wherry.rehearse.impersonate.memory import total_memory
from wherry.rehearse.impersonate.stand_ins import Virtual, answer, nothing
from wherry.rehearse.state import has_started, state_of
from wherry.rehearse.wording import torch_release

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal


def index_of(session: Rehearsal, device: Any = None) -> int:
    """The index that an argument "device" means: None, an int, a string or a torch.device."""
    if device is None:
        return session.current_index
    if isinstance(device, int):
        return session.current_index if device < 0 else device
    device = torch.device(device) if isinstance(device, str) else device
    if device.type != session.backend.device_type:
        raise ValueError(f"Expected a {session.backend.device_type} device, but got: {device}")
    return session.current_index if device.index is None else device.index


# -- the runtime starts on first use, and not in a forked child


def start(session: Rehearsal, *_: Any) -> None:
    """`torch.cuda._lazy_init`."""
    state = state_of(session)
    if state.forked:
        raise forked(session)
    state.started = True


def forked(session: Rehearsal) -> Exception:
    """What a forked child says that uses a device which its parent has used (torch/cuda/__init__.py, torch/xpu/__init__.py)."""
    word = session.backend.device_type.upper()
    return RuntimeError(
        f"Cannot re-initialize {word} in forked subprocess. To use {word} with multiprocessing, you must use the 'spawn' "
        "start method"
    )


def is_started(session: Rehearsal) -> bool:
    return has_started(session) and not state_of(session).forked


def call_now(session: Rehearsal, call: Any, **_: Any) -> None:
    """`torch.cuda._lazy_call`: waits for the runtime to start. A virtual one is always ready."""
    if not state_of(session).forked:
        call()


# -- which device is current


def set_current(session: Rehearsal, index: int) -> None:
    start(session)
    session.current_index = int(index)


def exchange(session: Rehearsal, index: int) -> int:
    """Make a device current and tell which one was; a negative index changes nothing."""
    if index < 0:
        return -1
    start(session)
    before = session.current_index
    session.current_index = int(index)
    return before


def can_access_peer(session: Rehearsal, index: int, peer: int) -> bool:
    return index != peer


def synchronize(session: Rehearsal, index: int | None = None) -> None:
    """Every op is done already; but an index must be one, and no graph may be in the making."""
    from wherry.rehearse.impersonate.graphs import capturing, not_permitted

    if index is not None:
        session.resolve(int(index))
    if capturing():
        raise not_permitted()


# -- what a device says of itself


class _Properties(SimpleNamespace):
    """What get_device_properties() gives."""


class _CudaProperties(_Properties):
    def __repr__(self) -> str:
        pci = (
            f", pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, pci_domain_id={self.pci_domain_id}"
            if torch_release() >= (2, 9)
            else ""
        )
        arch = "" if torch.version.hip is None else f", gcnArchName='{self.gcnArchName}'"
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}{arch}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}{pci}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


class _XpuProperties(_Properties):
    def __repr__(self) -> str:
        return (
            f"_XpuDeviceProperties(name='{self.name}', platform_name='{self.platform_name}', type='{self.type}', "
            f"device_id=0x{self.device_id:X}, driver_version='{self.driver_version}', "
            f"total_memory={self.total_memory >> 20}MB, local_mem_size={self.local_mem_size >> 10}KB, "
            f"max_compute_units={self.max_compute_units}, gpu_eu_count={self.gpu_eu_count}, "
            f"gpu_subslice_count={self.gpu_subslice_count}, max_work_group_size={self.max_work_group_size}, "
            f"max_num_sub_groups={self.max_num_sub_groups}, sub_group_sizes=[{' '.join(map(str, self.sub_group_sizes))}], "
            f"has_fp16={int(self.has_fp16)}, has_fp64={int(self.has_fp64)}, has_atomic64={int(self.has_atomic64)})"
        )


def properties(session: Rehearsal, index: int) -> _Properties:
    """The properties of a device whose index was checked: those of the profile, told apart by their uuid."""
    cls = {"cuda": _CudaProperties, "xpu": _XpuProperties}.get(session.backend.device_type, _Properties)
    fields = dict(session.profile.properties)
    if "pci_bus_id" in fields:
        fields["pci_bus_id"] = index + 1
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{session.backend.name}:{index}.virtual")
    return cls(name=session.profile.name, total_memory=total_memory(session), uuid=identity, **fields)


def device_properties(session: Rehearsal, device: Any = None) -> _Properties:
    """`get_device_properties`, whose C function is a name of the module that exists only once the runtime has started."""
    start(session)
    index = index_of(session, device)
    if isinstance(device, int) and device < 0 and session.backend.device_type == "cuda":
        index = device
    if not 0 <= index < session.count:
        if session.backend.device_type == "xpu":
            raise RuntimeError(
                f"The device index is out of range. It must be in [0, {session.count}), but got {index}."
            )
        raise AssertionError("Invalid device id")
    return properties(session, index)


def architectures(session: Rehearsal) -> str | None:
    """What this torch was built for, as the C function lists it."""
    virtual = session.backend.virtual
    return None if virtual is None or not virtual.architectures else " ".join(virtual.architectures)


class Generators(tuple[Any, ...]):  # noqa: SLOT001 - the slots of a tuple subclass must be empty, and this one has a name
    """`torch.cuda.default_generators`: for a thread in a rehearsal those of its devices."""

    device_type: str

    def _own(self) -> tuple[Any, ...]:
        from wherry.rehearse import randomness
        from wherry.rehearse.surface import thread

        mode = thread.mode
        if mode is None or mode.session.backend.device_type != self.device_type:
            return tuple(tuple.__iter__(self))
        return tuple(randomness.default_generator(place) for place in mode.session.places)

    def __getitem__(self, index: Any) -> Any:
        return self._own()[index]

    def __iter__(self) -> Any:
        return iter(self._own())

    def __len__(self) -> int:
        return len(self._own())

    def __repr__(self) -> str:
        return repr(self._own())


def generators(device_type: str, original: tuple[Any, ...]) -> Generators:
    """A stand-in for `default_generators`."""
    found = Generators(original)
    found.device_type = device_type
    return found


def refuse(device_type: str) -> Virtual:
    """What using a device says that the rehearsed machine does not have."""

    def absent_here(session: Rehearsal, *_: Any, **__: Any) -> Any:
        raise absent(device_type)

    return absent_here


def capability(session: Rehearsal, index: int) -> Any:
    """`torch._C._accelerator_getDeviceCapability`: the dtypes, where a backend tells; CUDA's does not in 2.13."""
    if session.backend.device_type != "xpu":
        raise RuntimeError("Backend doesn't support getting device capabilities.")
    names = sorted(session.backend.capabilities.dtypes)
    return {"supported_dtypes": {getattr(torch, name) for name in names if hasattr(torch, name)}}


QUESTIONS: dict[str, tuple[Virtual, Virtual | None]] = {
    "is_available": (answer(True), answer(False)),
    "device_count": (lambda session: session.count, answer(0)),
    "is_initialized": (is_started, answer(False)),
    "_is_compiled": (answer(True), answer(False)),
    "_is_in_bad_fork": (lambda session: state_of(session).forked, answer(False)),
    "_lazy_call": (call_now, None),
    "get_device_properties": (device_properties, None),
    "_check_bf16_tensor_supported": (answer(True), None),
}
"""Names of torch.cuda and torch.xpu that keep their answer for the life of the process, or ask C at import."""

EXCHANGES: dict[str, tuple[Virtual, Virtual | None]] = {
    "_exchange_device": (exchange, None),
    "_maybe_exchange_device": (exchange, None),
}

CUDA: dict[str, Virtual] = {
    "_cuda_getDevice": lambda session: session.current_index,
    "_cuda_setDevice": set_current,
    "_cuda_exchangeDevice": exchange,
    "_cuda_maybeExchangeDevice": exchange,
    "_cuda_synchronize": synchronize,
    "_cuda_canDeviceAccessPeer": can_access_peer,
    "_cuda_getArchFlags": architectures,
    "_cuda_sleep": nothing,
}

XPU: dict[str, Virtual] = {
    "_xpu_getDevice": lambda session: session.current_index,
    "_xpu_setDevice": set_current,
    "_xpu_exchangeDevice": exchange,
    "_xpu_maybeExchangeDevice": exchange,
    "_xpu_synchronize": synchronize,
    "_xpu_canDeviceAccessPeer": can_access_peer,
    "_xpu_getArchFlags": architectures,
    "_xpu_sleep": nothing,
}
