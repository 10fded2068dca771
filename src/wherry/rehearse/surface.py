"""Which rehearsal does this thread take part in? The question that every impersonated name asks first."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wherry.dispatch import drop_finished

if TYPE_CHECKING:
    from wherry.rehearse.mode import Mode


class _Participation(threading.local):
    mode: Mode | None = None

    def __init__(self) -> None:
        self.modes: list[Mode] = []


thread = _Participation()
"""`thread.mode` is the innermost mode of the calling thread, or None. Read directly where 40 ns matter."""


def current_mode() -> Mode | None:
    """The innermost mode of the calling thread."""
    return thread.mode


@contextlib.contextmanager
def participation(mode: Mode) -> Iterator[None]:
    """Let the calling thread take part through `mode`; only the innermost one of a thread acts.

    Blocks may end in any order, as those of two generators do.
    """
    modes = thread.modes
    modes.append(mode)
    _settle(modes)
    mode.__enter__()
    try:
        yield
    finally:
        modes.remove(mode)
        mode.finished = True
        mode.acting = False
        drop_finished()
        _settle(modes)


def _settle(modes: list[Mode]) -> None:
    for mode in modes:
        mode.acting = False
    thread.mode = modes[-1] if modes else None
    if modes:
        modes[-1].acting = True
