"""Threads and process groups: who else takes part in a rehearsal.

A thread started inside takes part through a mode of its own; so do pools, which start threads. A process group of the
device's own library ("nccl", "xccl") becomes gloo, which moves bytes between CPU processes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch

from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.surface import thread

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


def _init_process_group(original: Any) -> Any:
    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is not None and mode.session.places:
            backend = "gloo"
            kwargs.pop("device_id", None)
        return original(backend, *args, **kwargs)

    return init_process_group


def patches() -> Iterator[Patch]:
    """Names of threading and torch.distributed."""
    yield Patch(threading.Thread, "start", start)
    if torch.distributed.is_available():
        for module in (torch.distributed, torch.distributed.distributed_c10d):
            yield Patch(module, "init_process_group", _init_process_group(module.init_process_group))
