"""What a rehearsed machine remembers besides tensors: whether its runtime has started, streams, settings of libraries.

One `State` for each rehearsal, made on first use; it goes when the rehearsal goes.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal


class _Streams(threading.local):
    def __init__(self) -> None:
        self.current: dict[int, Any] = {}
        self.entered: list[tuple[int, Any]] = []


class State:
    """What one rehearsed machine remembers.

    Attributes:
        started: Whether the runtime was initialized, as `torch.cuda.init()` does: by its first use.
        forked: Whether this process was forked after that: then the device cannot be used here.
        streams: The stream that the calling thread uses on each device, by index, and what `with` blocks will put back.
        pools: Counts the streams made so far, by device and priority: they are handed out in turn.
        settings: What programs set and read back: workspace sizes, preferred libraries, tuning.
        numbers: Handles: of events, pools, ranges.
    """

    def __init__(self) -> None:
        self.started = False
        self.forked = False
        self.streams = _Streams()
        self.pools: dict[tuple[int, int], itertools.count[int]] = {}
        self.settings: dict[str, Any] = {}
        self.numbers = itertools.count(1)


_states: weakref.WeakKeyDictionary[Rehearsal, State] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def state_of(session: Rehearsal) -> State:
    """The state of a rehearsal's machine."""
    state = _states.get(session)
    if state is None:
        with _lock:
            state = _states.setdefault(session, State())
    return state


def states() -> list[tuple[Rehearsal, State]]:
    """Every rehearsal whose machine was used."""
    return list(_states.items())


def has_started(session: Rehearsal) -> bool:
    """Whether the program has used the device: called into its runtime, or made a tensor there."""
    state = state_of(session)
    if not state.started and any(place.allocations for place in session.places):
        state.started = True
    return state.started
