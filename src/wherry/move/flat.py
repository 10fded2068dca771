"""The short way for what most batches are: tensors in one container, with nothing special about them.

It does what `movement` does, for the case that none of its care is needed, which is looked at first. Moving is
then what `Tensor.to` costs and little else (benchmarks/move.py).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from wherry.move.destination import Destination
from wherry.move.kinds import ATOMS, Kind, kind_of
from wherry.move.tensors import are_at, are_simple

_TENSORS = {Tensor}


def flat(obj: Any, target: Destination) -> tuple[bool, Any]:
    """Move an object the short way: whether that was possible, and the object in its new place."""
    device = target.device
    cls = type(obj)
    if cls in ATOMS:
        return True, obj
    kind = kind_of(cls)
    if not isinstance(kind, Kind):
        return False, None
    values = kind.values(obj)
    if set(map(type, values)) != _TENSORS:
        return False, None
    if are_at(values, device):
        return True, obj
    if not target.is_plain or any(map(vars, values)) or not are_simple(values):
        return False, None
    try:
        moved = [tensor.to(device) for tensor in values]
    except Exception:  # noqa: BLE001 - the long way meets it again, and says where
        return False, None
    items = moved[: len(kind.items(obj))] if kind.has_attributes else moved
    twin = kind.again(obj, items)
    if kind.has_attributes:
        kind.dress(twin, obj, moved)
    return True, twin
