"""wherry carries PyTorch programs between devices, also to devices you do not have.

    import wherry

    device = wherry.pick()               # the device to use here, and why: print(device.explain())
    with wherry.rehearse("mps"):         # a virtual Mac in this process: real values, real errors
        train()

The map of the tree, upwards from the ground:

    errors  units  roster  callsite                  know only Python
    backends                                         one file = everything particular to one backend
    dispatch  storage  tree  events                  know tensors
    pick  rehearse                                   rooms: facts in, an answer out
    run                                              a whole program under wherry
    cli                                              `wherry ...`: one file = one command

Public is what `__all__` lists. All of it is loaded on first use: importing wherry imports no torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wherry.errors import (
        BadCount,
        BadRank,
        BadSize,
        CannotRehearse,
        DeviceAbsent,
        NoSuitableDevice,
        ScriptError,
        ScriptMissing,
        TorchMissing,
        UnknownDevice,
        UnknownDtype,
        UnknownProfile,
        WherryError,
    )
    from wherry.pick import Choice, pick
    from wherry.rehearse import Rehearsal, rehearse

__version__ = "0.1.0"

__all__ = [
    "BadCount",
    "BadRank",
    "BadSize",
    "CannotRehearse",
    "Choice",
    "DeviceAbsent",
    "NoSuitableDevice",
    "Rehearsal",
    "ScriptError",
    "ScriptMissing",
    "TorchMissing",
    "UnknownDevice",
    "UnknownDtype",
    "UnknownProfile",
    "WherryError",
    "pick",
    "rehearse",
]

# The module each public name comes from, where that is not wherry.errors.
_HOMES = {
    "Choice": "wherry.pick",
    "Rehearsal": "wherry.rehearse",
    "pick": "wherry.pick",
    "rehearse": "wherry.rehearse",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'wherry' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES.get(name, "wherry.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})


class _Package(ModuleType):
    """Keeps `wherry.pick` the function, although wherry/pick.py is a module of that name.

    The import system binds each submodule on its package; here, where the two share a name, the public one wins.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
