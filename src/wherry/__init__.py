"""wherry carries PyTorch programs between devices, also to devices you do not have.

    import wherry

    device = wherry.pick()               # the device to use here, and why: print(device.explain())
    model = wherry.compile(model)        # torch.compile where it is mature, else the model, and why
    with wherry.rehearse("mps"):         # a virtual Mac in this process: real values, real errors
        train()
    batch = wherry.move(batch, device)   # anything nested, whole: what shares bytes shares them afterwards
    print(wherry.where(model))           # what resides where, how many bytes, what would be left behind

The map of the tree, upwards from the ground:

    errors  units  roster  callsite                  know only Python
    backends                                         one file = everything particular to one backend
    dispatch  storage  tree  events                  know tensors
    native_functions                                 knows PyTorch's own operators
    pick  compile  ops  where  rehearse  explain     rooms: facts in, an answer out
    move                                             a room that asks another: where
    run                                              a whole program under wherry
    cli  pytest_plugin  notebook                     edges: `wherry ...`, failure reports, %load_ext wherry

Public is what `__all__` lists. All of it is loaded on first use: importing wherry imports no torch.

PYTEST_DONT_REWRITE: a run imports wherry before pytest, which would warn that it can no longer rewrite its assertions.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wherry.compile import NotCompiled, compile  # noqa: A004 - torch's name for it
    from wherry.errors import (
        BadCheckpoint,
        BadCount,
        BadOption,
        BadRank,
        BadSize,
        BadVariable,
        CannotRehearse,
        CheckpointMissing,
        DeviceAbsent,
        MissingExtra,
        NoSuitableDevice,
        ScriptError,
        ScriptMissing,
        StrayTensors,
        TorchMissing,
        Unconvertible,
        UnknownDevice,
        UnknownDtype,
        UnknownOperator,
        UnknownProfile,
        UnmovableLeaf,
        WherryError,
    )
    from wherry.explain import Diagnosis, explain, explain_exception
    from wherry.move import move
    from wherry.pick import Choice, pick
    from wherry.rehearse import Rehearsal, rehearse
    from wherry.where import Inventory, where

__version__ = "0.1.0"

__all__ = [
    "BadCheckpoint",
    "BadCount",
    "BadOption",
    "BadRank",
    "BadSize",
    "BadVariable",
    "CannotRehearse",
    "CheckpointMissing",
    "Choice",
    "DeviceAbsent",
    "Diagnosis",
    "Inventory",
    "MissingExtra",
    "NoSuitableDevice",
    "NotCompiled",
    "Rehearsal",
    "ScriptError",
    "ScriptMissing",
    "StrayTensors",
    "TorchMissing",
    "Unconvertible",
    "UnknownDevice",
    "UnknownDtype",
    "UnknownOperator",
    "UnknownProfile",
    "UnmovableLeaf",
    "WherryError",
    "compile",
    "explain",
    "explain_exception",
    "move",
    "pick",
    "rehearse",
    "where",
]

# The module each public name comes from, where that is not wherry.errors.
_HOMES = {
    "Choice": "wherry.pick",
    "Diagnosis": "wherry.explain",
    "Inventory": "wherry.where",
    "NotCompiled": "wherry.compile",
    "Rehearsal": "wherry.rehearse",
    "compile": "wherry.compile",
    "explain": "wherry.explain",
    "explain_exception": "wherry.explain",
    "move": "wherry.move",
    "pick": "wherry.pick",
    "rehearse": "wherry.rehearse",
    "where": "wherry.where",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'wherry' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES.get(name, "wherry.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})


def load_ipython_extension(shell: object) -> None:
    """What `%load_ext wherry` calls in a notebook: device errors of cells are explained from then on."""
    importlib.import_module("wherry.notebook").begin(shell)


def unload_ipython_extension(shell: object) -> None:
    """What `%unload_ext wherry` calls."""
    importlib.import_module("wherry.notebook").end(shell)


class _Package(ModuleType):
    """Keeps `wherry.pick` the function, although wherry/pick.py is a module of that name.

    The import system binds each submodule on its package; here, where the two share a name, the public one wins.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
