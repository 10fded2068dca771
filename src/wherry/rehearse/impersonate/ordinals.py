"""`device=1`: an int is a device of the accelerator, which C++ asks this build for before the mode can see the call.

So the factories that take a device are stood in for, only to turn an int into the rehearsed device (0.2 us a call). Ints
given to `Tensor.to`, `Module.to` and `torch.tensor` are dealt with where those are. `torch.device(1)` itself is a type
of C that nothing can stand in for without `type(x) is torch.device` turning false; it keeps saying that there is no
accelerator. Write `torch.device("cuda", 1)`.
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
        return original(*args, **kwargs)

    return stand_in


def resolved(index: int) -> torch.device:
    """The rehearsed device of an index."""
    if index < 0:
        raise RuntimeError("Device index must not be negative")
    return thread.mode.session.resolve(index).device  # type: ignore[union-attr]


class _Torch:
    """The module torch as torch.nn.parallel sees it, which writes `torch.device(1)` itself."""

    @staticmethod
    def device(*args: Any, **kwargs: Any) -> torch.device:
        if len(args) == 1 and type(args[0]) is int and thread.mode is not None and thread.mode.session.places:
            return resolved(args[0])
        return torch.device(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def patches() -> Iterator[Patch]:
    """The factories of torch, and those that are methods."""
    yield Patch(torch.nn.parallel._functions, "torch", _Torch())
    for name, original in {**_FACTORIES, **{name: getattr(torch, name) for name in _LIKE}}.items():
        if vars(torch).get(name) is original and name not in _CONSTRUCTORS:
            yield Patch(torch, name, _resolving(original))
    for name in ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"):
        yield Patch(Tensor, name, _resolving(getattr(Tensor, name)))
