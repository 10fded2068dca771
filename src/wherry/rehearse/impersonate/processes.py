"""Threads and forked children: who else takes part in a rehearsal.

A thread started inside takes part through a mode of its own; so do pools, which start threads. A child made by fork
takes part too, and may use the device unless its parent has: then it is told what the real runtime says.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from wherry.rehearse import accounting, records
from wherry.rehearse.absence import accelerator_error
from wherry.rehearse.impersonate.devices import forked
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.state import has_started, states
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal
    from wherry.storage import Place

_start = threading.Thread.start


def start(self: threading.Thread) -> None:
    """threading.Thread.start: hand the rehearsal over to the new thread."""
    mode = thread.mode
    if mode is not None:
        session = mode.session
        run = self.run

        @functools.wraps(run)
        def run_taking_part() -> None:
            with session.taking_part():
                run()

        self.run = run_taking_part  # type: ignore[method-assign]
    _start(self)


# -- fork


class _OutOfReach(dict[Any, Any]):
    """Where a rehearsal looks up its devices, in a child that cannot use them: whoever asks is told why."""

    def __init__(self, session: Rehearsal) -> None:
        super().__init__()
        self._session = session

    def get(self, device: Any, default: Any = None) -> Any:
        kind = self._session.backend.device_type
        if isinstance(device, int) or torch.device(device).type == kind:
            raise forked(self._session)
        return default


def _after_fork() -> None:
    """In the child: poison the devices that the parent has used, as CUDA's and XPU's runtimes do. MPS has no such guard."""
    for session, state in states():
        guarded = session.backend.device_type in ("cuda", "xpu")
        if guarded and accounting.is_on(session) and has_started(session) and not state.forked:
            state.forked = True
            session._by_device = _OutOfReach(session)
            for place in session.places:
                _close(place)


def _close(place: Place) -> None:
    """Let nothing be made at a place: the first byte is more than it holds."""
    place.limit = -1
    records.over_limit = _refuse_in_child


def _refuse_in_child(place: Place, nbytes: int) -> None:
    """An op on a tensor that the parent left on the device: the driver has no context in this process."""
    if place.limit != -1:
        accounting.check(place, nbytes)
    raise accelerator_error("CUDA error: initialization error", code=3)


os.register_at_fork(after_in_child=_after_fork)  # does nothing where no rehearsal is on


def patches() -> Iterator[Patch]:
    """Names of threading."""
    yield Patch(threading.Thread, "start", start)
