"""The Python surface of torch, replaced while at least one rehearsal is on, and put back exactly.

Each module beside this one knows one part of the surface and yields `Patch`es: an owner (a module or class), a name, and
the stand-in. A stand-in asks `surface.thread.mode` which rehearsal its thread takes part in and is the original for a
thread in none. What is data rather than a function (`torch.version.hip`) follows the rehearsal that was entered last.

    tensor        methods and properties of torch.Tensor
    storages      torch.UntypedStorage, and with it deepcopy, pickling, torch.save and torch.load
    constructors  torch.tensor and its kin, which allocate below the dispatcher; torch.Generator
    accelerators  torch.cuda, torch.xpu, torch.mps, torch.accelerator, torch.backends
    streams       the Stream and Event classes of a virtual device
    gradients     what autograd checks about devices
    exchange      DLPack, DataParallel
    composites    what C++ composites check before their first op
    unobserved    what PyTorch does otherwise while a mode listens
    autocast      mixed precision, by the lists of a device
    training      torch.compile, optimizers, TorchScript
    processes     threads, forked children
    distributed   process groups
    fakes         FakeTensorMode inside a rehearsal
    imports       modules of torch that are loaded late
    caches        what torch keeps of the machine it first saw
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import ModuleType

import torch

from wherry.backends._backend import Backend
from wherry.rehearse.impersonate import (
    accelerators,
    autocast,
    caches,
    composites,
    constructors,
    distributed,
    exchange,
    fakes,
    gradients,
    imports,
    processes,
    refusals,
    storages,
    tensor,
    training,
    unobserved,
)
from wherry.rehearse.impersonate.patches import MISSING, Patch, replace, restore

_PARTS = (
    tensor,
    storages,
    constructors,
    gradients,
    composites,
    unobserved,
    exchange,
    accelerators,
    autocast,
    training,
    processes,
    distributed,
    fakes,
)

_lock = threading.RLock()
_users: list[Backend] = []
_undo: list[Patch] = []
_constants_before: dict[tuple[ModuleType, str], object] = {}


@contextlib.contextmanager
def installed(backend: Backend) -> Iterator[None]:
    """Keep the stand-ins in place until the block ends; several blocks may overlap in any order."""
    with _lock:
        if not _users:
            _install()
        _users.append(backend)
        _apply_constants()
    try:
        yield
    finally:
        with _lock:
            _users.remove(backend)
            _apply_constants()
            if not _users:
                _uninstall()


def settle() -> None:
    """Bring what C++ keeps for this thread up to date with the rehearsal that it takes part in now."""
    autocast.settle()


def _install() -> None:
    try:
        for patch in _stand_ins():
            _undo.append(replace(patch))  # noqa: PERF401 - one by one: what was replaced before an error is put back
        for patch in constructors.captured():
            _undo.append(replace(patch))  # noqa: PERF401 - as above
        imports.watch()
        refusals.watch()
    except BaseException:
        _uninstall()
        raise


def _uninstall() -> None:
    imports.unwatch()
    autocast.withdraw()
    refusals.unwatch()
    restore(_undo)
    _undo.clear()


_made: list[tuple[Patch, object]] = []  # a patch, and what its name held when the stand-in was made around it


def _stand_ins() -> list[Patch]:
    """The stand-ins, made anew only when somebody else has replaced one of the names since."""
    if not _made or any(vars(patch.owner).get(patch.name, MISSING) is not before for patch, before in _made):
        _made[:] = [(patch, vars(patch.owner).get(patch.name, MISSING)) for part in _PARTS for patch in part.patches()]
    return [patch for patch, _ in _made]


def _apply_constants() -> None:
    """Give `torch.version.*` and the like the values of the rehearsal entered last, or their own."""
    caches.forget()
    for (owner, name), value in _constants_before.items():
        if value is MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    _constants_before.clear()
    if not _users or _users[-1].virtual is None:
        return
    backend = _users[-1]
    constants = dict(backend.virtual.constants)
    if backend.namespace is not None:
        constants[f"{backend.namespace}._initialized"] = (
            True  # checkpoint asks it before it saves the device's generator
        )
    for dotted, value in constants.items():
        path, _, name = dotted.rpartition(".")
        owner = _module(path)
        if name.startswith("_") and not hasattr(owner, name):
            continue
        _constants_before[owner, name] = vars(owner).get(name, MISSING)
        setattr(owner, name, value)


def _module(path: str) -> ModuleType:
    module: ModuleType = torch
    for part in path.split(".")[1:]:
        module = getattr(module, part)
    return module
