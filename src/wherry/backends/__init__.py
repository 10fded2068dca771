"""The backends wherry knows: one file each, and those of third parties.

`find("rocm")` answers with the `Backend` of that name or alias, `all()` with every one of them, the host first and then in
the order `pick()` tries them. Adding a backend is adding a file here, or an entry point in the group `wherry.backends`
that names an instance of `Backend` (or a module that binds one to `BACKEND`).

Nothing here imports torch: a backend does so inside its methods.
"""

from __future__ import annotations

import functools
import sys

from wherry import roster
from wherry.backends._backend import (
    Backend,
    Capabilities,
    Kernels,
    Maturity,
    Memory,
    Presence,
    Quirk,
    Span,
    State,
    VirtualDevice,
    Wording,
)
from wherry.errors import UnknownDevice

__all__ = [
    "Backend",
    "Capabilities",
    "Kernels",
    "Maturity",
    "Memory",
    "Presence",
    "Quirk",
    "Span",
    "State",
    "VirtualDevice",
    "Wording",
    "all",
    "broken",
    "find",
]


@functools.cache
def _roster() -> roster.Roster[Backend]:
    return roster.read(
        sys.modules[__name__],
        binding="BACKEND",
        kind=Backend,
        name=lambda backend: backend.name,
        group="wherry.backends",
    )


@functools.cache
def all() -> tuple[Backend, ...]:  # noqa: A001 - it is always read as `backends.all()`
    """Every usable backend: the host first, then accelerators in the order `pick()` tries them."""
    return tuple(sorted(_roster().entries, key=lambda backend: (backend.priority > 0, -backend.priority, backend.name)))


def broken() -> tuple[roster.Broken, ...]:
    """Third-party entries that could not be used, each with its reason."""
    return _roster().broken


def find(name: str) -> Backend:
    """The backend of this name or alias, in any case.

    Raises:
        UnknownDevice: there is none; the message names the closest.

    >>> find("AMD").name, find("rocm").device_type
    ('rocm', 'cuda')
    """
    wanted = name.strip().lower()
    for backend in all():
        if wanted == backend.name or wanted in backend.aliases:
            return backend
    raise UnknownDevice(name, [backend.name for backend in all()])
