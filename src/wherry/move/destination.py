"""What `device` means to a movement: a device of torch with its index, or another library's arrays.

Text becomes a `Destination` once; which of several devices "cuda" is depends on the moment, and is asked each time, as
`Tensor.to` does. What no backend knows is left to torch, so that devices of third parties work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from wherry import backends
from wherry.backends import Backend, State
from wherry.errors import DeviceAbsent, UnknownDevice

LIBRARIES = ("numpy", "mlx")
"""Destinations that are no device of torch."""

_NARROWER = {"float64": "float32", "complex128": "complex64"}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where things are to go.

    Attributes:
        device: The device, with its index where its tensors have one.
        library: "numpy" or "mlx", whose arrays are made of what has come to `device`, the host; else None.
        queues: Whether copies from pinned memory to it run beside the program.
        lacks: The dtypes that it cannot hold and that are converted, with what takes their place.
    """

    device: torch.device
    library: str | None
    queues: bool
    lacks: Mapping[torch.dtype, torch.dtype]

    @property
    def is_plain(self) -> bool:
        """Whether `Tensor.to(device)` is all there is to it."""
        return not self.queues and not self.lacks


_HOST = Destination(torch.device("cpu"), None, queues=False, lacks={})
_META = Destination(torch.device("meta"), None, queues=False, lacks={})
_settled = {
    "cpu": _HOST,
    "meta": _META,
    torch.device("cpu"): _HOST,
    torch.device("meta"): _META,
    **{name: Destination(torch.device("cpu"), name, queues=False, lacks={}) for name in LIBRARIES},
}


def destination_of(device: Any) -> Destination:
    """What a device means now.

    Args:
        device: "cuda:1", "mps", "rocm", "meta", "numpy", "mlx", a torch.device, or the index of an accelerator.

    Raises:
        UnknownDevice: nobody answers to it, or there is no device of this index.
        DeviceAbsent: it is known, but not here.
    """
    try:
        known = _settled.get(device)
    except TypeError:  # unhashable
        known = None
    if known is not None:
        return known
    if not isinstance(device, int | str | torch.device):
        raise UnknownDevice(f"a {type(device).__name__}", _known())
    parsed, backend = _parsed(device if isinstance(device, int) else str(device))
    if parsed.type in ("cpu", "meta"):
        return _settled[parsed.type]
    if backend is None:
        return Destination(parsed, None, queues=False, lacks={})
    count = backend.count()
    if not count:
        presence = backend.probe()
        only_one = backend.virtual is not None and backend.virtual.max_count == 1
        name = str(device).partition(":")[0] if only_one else str(device)  # what the text says to rehearse
        raise DeviceAbsent(name, presence.reason, broken=presence.state is State.BROKEN)
    index = parsed.index if parsed.index is not None else _current(backend)
    if index >= count:
        known_names = [f"{parsed.type}:{other}" for other in range(count)]
        raise UnknownDevice(str(device), known_names, title=backend.name.upper(), environment=backend.hidden_by())
    can = backend.capabilities
    return Destination(
        torch.device(parsed.type, index),
        None,
        queues=can.non_blocking and can.pinned_memory and can.streams,
        lacks=_lacking(backend, index),
    )


def _parsed(device: str | int) -> tuple[torch.device, Backend | None]:
    """A torch.device, with an index or without, and the backend that answers for it."""
    if isinstance(device, int):
        if isinstance(device, bool) or device < 0:
            raise UnknownDevice(str(device), _known())
        try:
            parsed = torch.device(device)
        except RuntimeError:
            raise DeviceAbsent(f"cuda:{device}", "no accelerator is here, of which it would be the index") from None
        return parsed, _answering_for(parsed.type)
    name, colon, digits = device.strip().lower().partition(":")
    named = next((b for b in backends.all() if name == b.name or name in b.aliases), None)
    if named is not None:
        # "rocm" and "gpu" are nothing to torch. Two backends may have one device type; the one that is here is meant.
        here = _answering_for(named.device_type)
        named = here if here is not None and here.count() else named
        name = named.device_type
    try:
        return torch.device(f"{name}{colon}{digits}"), named or _answering_for(name)
    except RuntimeError:
        raise UnknownDevice(device, _known()) from None


def _known() -> list[str]:
    return [*(backend.name for backend in backends.all()), "meta", *LIBRARIES]


def _answering_for(device_type: str) -> Backend | None:
    """The backend of a device type: of several the one that is here, else the first."""
    found = [backend for backend in backends.all() if backend.device_type == device_type]
    if len(found) < 2:
        return found[0] if found else None
    return next((backend for backend in found if backend.count()), found[0])


def _current(backend: Backend) -> int:
    """The index that torch takes for a device that is named without one."""
    if backend.namespace is None:
        return 0
    namespace: Any = torch.get_device_module(backend.device_type)
    current = getattr(namespace, "current_device", None)
    return 0 if current is None else current()


def _lacking(backend: Backend, index: int) -> Mapping[torch.dtype, torch.dtype]:
    return {
        getattr(torch, wide): getattr(torch, narrow)
        for wide, narrow in _NARROWER.items()
        if not backend.can_hold(wide, index) and backend.can_hold(narrow, index)
    }
