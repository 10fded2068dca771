"""How a name of torch comes to have a stand-in: which function answers, for which rehearsal, and where copies of it are."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wherry.rehearse.impersonate.patches import MISSING, Patch
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

Virtual = Callable[..., Any]
"""A function whose first argument is the rehearsal; the rest is what the program passes."""


def answer(value: Any) -> Virtual:
    """A virtual function that always says the same."""
    return lambda session, *args, **kwargs: value


def nothing(session: Rehearsal, *_: Any, **__: Any) -> None:
    """Work that a rehearsal has already done, or has no equivalent of: synchronize, empty_cache."""


def on_type(device_type: str, original: Any, there: Virtual, otherwise: Virtual | None = None, name: str = "") -> Any:
    """A stand-in that is `there` in a rehearsal of that device type, and else `otherwise`, or what it stands in for.

    Args:
        device_type: "cuda" means CUDA and ROCm.
        original: What the name holds now, or `MISSING`: builds without a device lack the C functions behind it.
        there: What it does where the device is there.
        otherwise: What it does in a rehearsal of another device. None: what this torch does.
        name: What to say is missing.
    """
    if original is MISSING:

        def original(*_: Any, **__: Any) -> Any:
            raise AttributeError(f"module 'torch._C' has no attribute '{name}'")

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is None:
            return original(*args, **kwargs)
        if mode.session.backend.device_type == device_type:
            return there(mode.session, *args, **kwargs)
        if otherwise is None:
            return original(*args, **kwargs)
        return otherwise(mode.session, *args, **kwargs)

    return functools.wraps(original)(stand_in)


def replaced(
    module: ModuleType, device_type: str, table: dict[str, tuple[Virtual, Virtual | None]], *, also: str = ""
) -> Iterator[Patch]:
    """Names of a module that a table knows, where this torch has them.

    `also` is a package whose modules took some of them by name: "torch.cuda".
    """
    copies = copies_in(also) if also else {}
    for name, (there, otherwise) in table.items():
        original = vars(module).get(name, MISSING)
        if original is not MISSING:
            yield from everywhere(module, name, original, on_type(device_type, original, there, otherwise), copies)


def bottom(module: ModuleType, device_type: str, table: dict[str, Virtual]) -> Iterator[Patch]:
    """C functions that torch's own Python code ends in, also where this build has none of them."""
    for name, there in table.items():
        original = vars(module).get(name, MISSING)
        yield Patch(module, name, on_type(device_type, original, there, name=name))


def everywhere(
    module: ModuleType, name: str, original: Any, stand_in: Any, copies: dict[int, list[tuple[ModuleType, str]]]
) -> Iterator[Patch]:
    """A name of a module, and the other names by which modules of torch hold the same object."""
    yield Patch(module, name, stand_in)
    for other, other_name in copies.get(id(original), ()):
        if (other, other_name) != (module, name):
            yield Patch(other, other_name, stand_in)


_copies: dict[str, tuple[int, dict[int, list[tuple[ModuleType, str]]]]] = {}


def copies_in(package: str) -> dict[int, list[tuple[ModuleType, str]]]:
    """Where the modules of a package hold which object: `torch.cuda.memory._lazy_init` is `torch.cuda._lazy_init`."""
    modules = [m for n, m in list(sys.modules.items()) if n == package or n.startswith(package + ".")]
    known = _copies.get(package)
    if known is not None and known[0] == len(modules):
        return known[1]
    found: dict[int, list[tuple[ModuleType, str]]] = {}
    for module in modules:
        if isinstance(module, ModuleType):
            for name, value in vars(module).items():
                if callable(value) and not name.startswith("__"):
                    found.setdefault(id(value), []).append((module, name))
    _copies[package] = (len(modules), found)
    return found


def class_for(
    device_types: tuple[str, ...], virtual: type, original: type, *, make: Callable[..., Any] | None = None
) -> type:
    """A class whose instances are virtual in a rehearsal of one of these device types; `isinstance` knows both kinds.

    `make` is what to call for an instance, if not `virtual`.
    """
    make = make or virtual

    class Type(type(original)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is stand_in:
                mode = thread.mode
                if mode is not None and mode.session.backend.device_type in device_types:
                    return make(*args, **kwargs)
                return original(*args, **kwargs)
            return super().__call__(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, (virtual, original)) if cls is stand_in else super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, (virtual, original)) if cls is stand_in else super().__subclasscheck__(subclass)

        def __getattr__(cls, name: str) -> Any:  # class methods that the original lacks where no device is built in
            mode = thread.mode
            if mode is not None and cls is stand_in and mode.session.backend.device_type in device_types:
                return getattr(virtual, name)
            raise AttributeError(f"type object {original.__name__!r} has no attribute {name!r}")

    stand_in = Type(original.__name__, (original,), {"__module__": original.__module__, "__doc__": original.__doc__})
    return stand_in
