"""FakeTensorMode inside a rehearsal: its tensors have no storage, and know themselves which device they stand for.

DTensor asks it for the shapes of results, and so do libraries before they allocate. While one is entered, its thread takes
part in no rehearsal. It is also made outside of one: where torch says that CUDA is available it leaves the guards of this
build alone, which have no CUDA and would end the process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch

from wherry.dispatch import FakeTensor, FakeTensorMode
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.mode import Mode
from wherry.rehearse.surface import thread

_normalize = FakeTensor.__dict__.get("_normalize_fake_device")  # torch 2.13; before, C++ of this build is asked
_make, _enter, _exit = FakeTensorMode.__init__, FakeTensorMode.__enter__, FakeTensorMode.__exit__


def _step_aside() -> Mode | None:
    mode = thread.mode
    if mode is not None:
        mode.acting = False
        thread.mode = None
    return mode


def _step_back(mode: Mode | None) -> None:
    if mode is not None:
        mode.acting = True
        thread.mode = mode


def normalized(device: torch.device) -> torch.device:
    """The device of a fake tensor: "cuda" is the current one of the rehearsal that the thread has left for a while."""
    mode = next(reversed(thread.modes), None)
    if device.index is None and mode is not None and device.type == mode.session.backend.device_type:
        return torch.device(device.type, mode.session.current_index)
    return _normalize.__func__(device)


def make(self: FakeTensorMode, *args: Any, **kwargs: Any) -> None:
    """FakeTensorMode(): on this build, which it asks what there is."""
    mode = _step_aside()
    try:
        _make(self, *args, **kwargs)
    finally:
        _step_back(mode)


def enter(self: FakeTensorMode) -> FakeTensorMode:
    """Take part in no rehearsal until it is left."""
    mode = _step_aside()
    try:
        entered = _enter(self)
    except BaseException:
        _step_back(mode)
        raise
    self.__dict__.setdefault("_wherry_aside", []).append(mode)
    return entered


def leave(
    self: FakeTensorMode, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """Take part again."""
    try:
        _exit(self, kind, error, trace)
    finally:
        aside = self.__dict__.get("_wherry_aside")
        _step_back(aside.pop() if aside else None)


def patches() -> Iterator[Patch]:
    """The methods of FakeTensorMode that begin and end it."""
    if _normalize is not None:
        yield Patch(
            FakeTensor, "_normalize_fake_device", staticmethod(functools.wraps(_normalize.__func__)(normalized))
        )
    for name, original, stand_in in (
        ("__init__", _make, make),
        ("__enter__", _enter, enter),
        ("__exit__", _exit, leave),
    ):
        yield Patch(FakeTensorMode, name, functools.wraps(original)(stand_in))
