"""A roster: a folder of files, each defining one object, together with an entry-point group.

The folder is the registry. A module of the folder binds its object to one agreed name (`BACKEND`, `COMMAND`); modules
that start with an underscore are not on the roster. Third parties join by an entry point that names such an object, or a
module that binds one.

What comes out is a `Roster`: the objects in the order of their files' names, then those of third parties, and beside them
the third-party entries that could not be used, each with its reason. A file of our own that fails is our bug and raises;
an entry of somebody else must never take the rest down.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broken:
    """An entry point that could not be used."""

    name: str  # of the entry point
    source: str  # where it leads: "package.module:attribute", and the distribution that says so
    reason: str


@dataclass(frozen=True, slots=True)
class Roster(Generic[T]):
    """What a folder and an entry-point group offer.

    Attributes:
        entries: The usable objects.
        broken: The third-party entries that are not among them, and why.
    """

    entries: tuple[T, ...]
    broken: tuple[Broken, ...] = ()


def read(
    package: ModuleType, *, binding: str, kind: type[T], name: Callable[[T], str], group: str | None = None
) -> Roster[T]:
    """Read the roster of a package.

    Args:
        package: The folder.
        binding: The name each file binds its object to.
        kind: The type of the objects.
        name: Tells what an object is called; two of one name cannot both be on the roster.
        group: The entry-point group of third parties, if they may join.
    """
    entries = list(_own(package, binding, kind))
    taken = {name(entry) for entry in entries}
    broken: list[Broken] = []
    for point in metadata.entry_points(group=group) if group else ():
        source = f"{point.value} ({point.dist.name} {point.dist.version})" if point.dist else point.value
        try:
            found: object = point.load()
            entry: object = getattr(found, binding, None) if isinstance(found, ModuleType) else found
            if entry is None:
                raise TypeError(f"the module binds no {binding}")
            if not isinstance(entry, kind):
                raise TypeError(f"it is a {type(entry).__name__}, not a {kind.__name__}")
            if name(entry) in taken:
                raise ValueError(f"the name {name(entry)!r} is taken")
        except Exception as err:  # noqa: BLE001 - whatever somebody else's module does at import must not stop ours
            broken.append(Broken(point.name, source, f"{type(err).__name__}: {err}"))
        else:
            entries.append(entry)
            taken.add(name(entry))
    return Roster(tuple(entries), tuple(broken))


def _own(package: ModuleType, binding: str, kind: type[T]) -> Iterator[T]:
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        if module.name.startswith("_"):
            continue
        path = f"{package.__name__}.{module.name}"
        entry: object = getattr(importlib.import_module(path), binding, None)
        if not isinstance(entry, kind):
            raise TypeError(f"{path} must bind {binding} to a {kind.__name__}")
        yield entry
