"""`device=1`: an int is a device of the accelerator, which C++ asks this build for before the mode can see the call.

So the factories that take a device are stood in for, only to turn an int into the rehearsed device (0.2 us a call). Ints
given to `Tensor.to`, `Module.to` and `torch.tensor` are dealt with where those are. `torch.device(1)` itself is a type
of C. Its stand-in makes real ones, passes `isinstance` and equals the type it stands for, also as a key; only
`type(x) is torch.device` is no longer so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._device import _device_constructors  # every factory of torch that takes a device; 2.6; test_ordinals

from wherry.rehearse.impersonate.constructors import _CONSTRUCTORS
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.surface import thread

_FACTORIES = {
    f.__name__: f for f in _device_constructors()
}  # which keeps its first answer: the originals, not stand-ins
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")


def _resolving(original: Any) -> Any:
    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if type(kwargs.get("device")) is int and thread.mode is not None and thread.mode.session.places:
            kwargs["device"] = resolved(kwargs["device"])
        if kwargs.get("out") is not None and kwargs.get("device") is not None and thread.mode is not None:
            _check_out(kwargs["out"], torch.device(kwargs["device"]))
        return original(*args, **kwargs)

    return stand_in


def _check_out(out: Any, device: torch.device) -> None:
    """An `out=` and a `device=` name one type of device (torch/csrc/utils/out_types.cpp)."""
    if isinstance(out, Tensor) and out.device.type != device.type:
        raise RuntimeError(f"device type {device.type} does not match device type of out parameter ({out.device.type})")


def resolved(index: int) -> torch.device:
    """The rehearsed device of an index."""
    if index < 0:
        raise RuntimeError("Device index must not be negative")
    return thread.mode.session.resolve(index).device  # type: ignore[union-attr]


_device = torch.device


class _DeviceType(type):
    """Answers for torch.device, but for the one call that asks this build what it is built for."""

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        if len(args) == 1 and type(args[0]) is int and thread.mode is not None and thread.mode.session.places:
            if args[0] >= 0:  # one beyond the last is a device too, until something is put there
                return _device(thread.mode.session.backend.device_type, args[0])
            return resolved(args[0])  # says that it is negative
        return _device(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _device)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, _device)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _device

    def __hash__(cls) -> int:
        return hash(_device)

    def __repr__(cls) -> str:
        return repr(_device)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_device, name)


class Device(metaclass=_DeviceType):
    """Stands in for torch.device."""

    __wrapped__ = _device  # as functools.wraps leaves it: what TorchScript compiles


Device.__module__, Device.__doc__ = "torch", _device.__doc__
Device.__name__ = Device.__qualname__ = "device"


class _Torch:
    """The module torch as torch.jit.annotations sees it, which compares annotations with `is torch.device`."""

    device = _device

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _annotated(original: Any) -> Any:
    """`try_ann_to_type`: what was annotated during a rehearsal names the stand-in."""

    @functools.wraps(original)
    def stand_in(ann: Any, *args: Any, **kwargs: Any) -> Any:
        return original(_device if ann is Device else ann, *args, **kwargs)

    return stand_in


def patches() -> Iterator[Patch]:
    """torch.device, the factories of torch, and those that are methods."""
    yield Patch(torch, "device", Device)
    yield Patch(torch.jit.annotations, "torch", _Torch())
    yield Patch(torch.jit.annotations, "try_ann_to_type", _annotated(torch.jit.annotations.try_ann_to_type))
    for name, original in {**_FACTORIES, **{name: getattr(torch, name) for name in _LIKE}}.items():
        if vars(torch).get(name) is original and name not in _CONSTRUCTORS:
            yield Patch(torch, name, _resolving(original))
    for name in ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"):
        yield Patch(Tensor, name, _resolving(getattr(Tensor, name)))
