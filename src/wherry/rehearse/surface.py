"""Which rehearsal does this thread take part in? The question that every impersonated name asks first."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wherry.rehearse.mode import Mode


class _Participation(threading.local):
    mode: Mode | None = None


thread = _Participation()
"""`thread.mode` is the innermost mode of the calling thread, or None. Read directly where 40 ns matter."""


def current_mode() -> Mode | None:
    """The innermost mode of the calling thread."""
    return thread.mode


@contextlib.contextmanager
def participation(mode: Mode) -> Iterator[None]:
    """Let the calling thread take part through `mode`."""
    before = thread.mode
    thread.mode = mode
    try:
        yield
    finally:
        thread.mode = before
