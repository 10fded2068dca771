"""Replacing a name of a module or class, and putting back exactly what was there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch.overrides import handle_torch_function, has_torch_function

from wherry.rehearse.surface import thread

MISSING = object()
"""What a name held that was not there: inherited by the class, or absent."""


class Patch(NamedTuple):
    """A name to replace, or after `replace` a name to put back: `value` is what it holds next."""

    owner: Any
    name: str
    value: Any


def replace(patch: Patch) -> Patch:
    """Put a stand-in in place. Returns the patch that undoes it."""
    before = vars(patch.owner).get(patch.name, MISSING)
    setattr(patch.owner, patch.name, patch.value)
    return Patch(patch.owner, patch.name, before)


def restore(undo: Iterable[Patch]) -> None:
    """Put back what `replace` returned, last first."""
    for owner, name, before in reversed(list(undo)):
        if before is MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def to_torch_function(stand_in: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a subclass or a function mode makes of a call of a stand-in; `MISSING` where there is none to ask.

    C++ would hand them the function that is stood in for, and they know it by the name that holds the stand-in. To be
    asked first, so that they see one call, and not what the stand-in does.
    """
    relevant = (*args, *kwargs.values())
    if args and isinstance(args[0], list | tuple):
        relevant = (*args[0], *relevant)
    return handle_torch_function(stand_in, relevant, *args, **kwargs) if has_torch_function(relevant) else MISSING


def standing_in(original: Callable[..., Any], virtual: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is `virtual(session, ...)` for a thread in a rehearsal, and `original(...)` for any other."""

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is None:
            return original(*args, **kwargs)
        return virtual(mode.session, *args, **kwargs)

    return stand_in
