"""Whether to compile: facts of the backends in, a reason not to out.

A reason is a clause without its full stop; None means that nothing speaks against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from wherry import backends
from wherry.backends import Backend, Maturity
from wherry.errors import UnknownDevice
from wherry.pick import pick

if TYPE_CHECKING:
    import torch

_INSIST = "strict=True compiles all the same"


class NotCompiled(UserWarning):
    """Something runs eagerly that `wherry.compile` was asked to compile; the text says why."""


def said_device(device: str | torch.device | None) -> Backend | None:
    """The backend that a caller named; None when the caller left it open.

    Raises:
        UnknownDevice: no backend answers to it.
    """
    if device is None or str(device) == "auto":
        return None
    name, colon, index = str(device).partition(":")
    if colon and not re.fullmatch(r"[0-9]+", index):
        raise UnknownDevice(str(device), [backend.name for backend in backends.all()])
    return backends.find(name)


def why_not(model: object, given: Backend | None) -> str | None:
    """Why `model` should not be compiled, as far as can be told before it runs."""
    if given is not None:
        return _why_immature(given)
    homes = _homes(model)
    return why_not_on(homes) if homes else _why_not_in_a_rehearsal()


def why_not_on(devices: Iterable[torch.device]) -> str | None:
    """Why nothing should be compiled for tensors on these devices."""
    for device in sorted(set(devices), key=str):
        backend = next((backend for backend in backends.all() if backend.device_type == device.type), None)
        if backend is not None:  # else it is for torch to say, which knows devices that wherry does not
            reason = _why_immature(backend)
            if reason is not None:
                return f"it is on {device}, and {reason}"
    return None


def why_not_here() -> str | None:
    """Why this torch cannot compile anything in this Python."""
    from wherry.dispatch import why_no_dynamo

    return why_no_dynamo()


def name_of(model: object) -> str:
    """What a user calls a model: the class of a module, the name of a function."""
    name = getattr(model, "__qualname__", None) or type(model).__qualname__
    return str(name).rpartition("<locals>.")[2]


def _homes(model: object) -> set[torch.device]:
    """Where the parameters and buffers of a module are. Those on "meta" are nowhere yet."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return set()
    return {tensor.device for tensor in chain(model.parameters(), model.buffers()) if tensor.device.type != "meta"}


def _why_not_in_a_rehearsal() -> str | None:
    """What has no device will be called with tensors of the device that is rehearsed."""
    from wherry.dispatch import is_watched

    return _why_immature(backends.find(pick().backend)) if is_watched() else None


def _why_immature(backend: Backend) -> str | None:
    import torch

    maturity = backend.compiles()
    if maturity is Maturity.MATURE:
        return None
    if maturity is Maturity.PROTOTYPE:
        return f"torch.compile is a prototype on {backend.title} ({_INSIST})"
    return f"torch {torch.__version__} cannot compile for {backend.title}"
