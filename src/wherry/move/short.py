"""The short way for what most batches are: containers of tensors that nothing is special about.

It does what `movement` does where none of its care is needed, which is looked at first. Moving is then what `Tensor.to` costs
and little else (benchmarks/move.py). So this file counts fractions of a microsecond: lists side by side, no objects.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import Tensor

from wherry.move.containers import ATOMS, Kind
from wherry.move.destination import Destination
from wherry.move.kinds import kind_of
from wherry.move.tensors import are_at, are_simple, simple_copies

_TENSORS = {Tensor}
_MOST = 10_000  # containers; with more, or with one that contains itself, the other way is as good


def short_way(obj: Any, target: Destination) -> tuple[bool, Any]:
    """Move an object the short way: whether that was possible, and the object in its new place."""
    cls = type(obj)
    if cls is Tensor:
        return _flat([obj], obj, target)
    if cls in ATOMS:
        return True, obj
    if cls is dict:
        inside = list(obj.values())
        if set(map(type, inside)) == _TENSORS and ATOMS.issuperset(map(type, obj)):
            return _flat(inside, obj, target)
    tree = _look(obj)
    if tree is None:
        return False, None
    tensors, nodes, values, first_tensor, first_node = tree
    device = target.device
    if not tensors or (tensors[0].device == device and are_at(tensors, device)):
        return True, obj
    if not target.is_plain or not are_simple(tensors) or len(set(map(id, nodes))) != len(nodes):
        return False, None
    try:
        moved = simple_copies(tensors, device)
    except Exception:  # noqa: BLE001 - the long way meets it again, and says where
        return False, None
    if any(map(operator.is_, moved, tensors)):  # some were there already, and what holds only such stays
        return False, None
    try:
        return True, _put_together(nodes, values, moved, first_tensor, first_node)
    except Exception:  # noqa: BLE001 - as above
        return False, None


def _flat(tensors: list[Any], obj: Any, target: Destination) -> tuple[bool, Any]:
    """The same for a tensor, or a dict of nothing else: the commonest of all."""
    device = target.device
    if tensors[0].device == device and are_at(tensors, device):
        return True, obj
    if not target.is_plain or not are_simple(tensors):
        return False, None
    try:
        moved = simple_copies(tensors, device)
    except Exception:  # noqa: BLE001 - as above
        return False, None
    return True, moved[0] if type(obj) is Tensor else dict(zip(obj, moved))  # noqa: B905 - as many as keys


def _look(obj: Any) -> tuple[list[Any], list[Any], list[list[Any]], list[int], list[int]] | None:
    """What is in an object, or None if the short way is not for it.

    Returns:
        All tensors; all containers, breadth first; what is in each; and for each of them where in the first two lists
        what is in it begins.
    """
    tensors: list[Any] = []
    nodes = [obj]
    values: list[list[Any]] = []
    first_tensor: list[int] = []
    first_node: list[int] = []
    keys: list[Any] = []
    for node in nodes:  # it grows
        cls = type(node)
        if cls is dict:
            inside = list(node.values())
            keys += node
        elif cls is list or cls is tuple:
            inside = node
        else:
            kind = kind_of(cls)
            if not isinstance(kind, Kind):
                return None
            inside = kind.values(node)
        values.append(inside)
        first_tensor.append(len(tensors))
        first_node.append(len(nodes))
        types = set(map(type, inside))
        if types == _TENSORS:
            tensors += inside
        elif not types <= ATOMS:
            for value in inside:
                cls = type(value)
                if cls is Tensor:
                    tensors.append(value)
                elif cls not in ATOMS:
                    nodes.append(value)
            if len(nodes) > _MOST:
                return None
    return (tensors, nodes, values, first_tensor, first_node) if ATOMS.issuperset(map(type, keys)) else None


def _put_together(
    nodes: list[Any], values: list[list[Any]], moved: list[Any], first_tensor: list[int], first_node: list[int]
) -> Any:
    """The containers anew, from the last, which hold no others, to the first."""
    twins: list[Any] = [None] * len(nodes)
    last_tensor, last_node = len(moved), len(nodes)
    for position in range(len(nodes) - 1, -1, -1):
        node, inside = nodes[position], values[position]
        tensor, child = first_tensor[position], first_node[position]
        if last_tensor - tensor == len(inside):
            inside = moved[tensor:last_tensor]
        else:
            inside = _exchanged(inside, moved, tensor, twins, child)
        if last_tensor == tensor and all(map(operator.is_, twins[child:last_node], nodes[child:last_node])):
            twins[position] = node  # nothing moved in it
        else:
            cls = type(node)
            if cls is dict:
                twins[position] = dict(zip(node, inside))  # noqa: B905 - as many as keys
            elif cls is list:
                twins[position] = inside
            elif cls is tuple:
                twins[position] = tuple(inside)
            else:
                twins[position] = _of_kind(node, inside)
        last_tensor, last_node = tensor, child
    return twins[0]


def _exchanged(inside: Any, moved: list[Any], tensor: int, twins: list[Any], child: int) -> list[Any]:
    """What is in a container, with copies of the tensors and containers."""
    exchanged: list[Any] = []
    for value in inside:
        cls = type(value)
        if cls is Tensor:
            exchanged.append(moved[tensor])
            tensor += 1
        elif cls in ATOMS:
            exchanged.append(value)
        else:
            exchanged.append(twins[child])
            child += 1
    return exchanged


def _of_kind(node: Any, inside: list[Any]) -> Any:
    kind = kind_of(type(node))
    assert isinstance(kind, Kind)
    if not kind.has_attributes:
        return kind.again(node, inside)
    twin = kind.again(node, inside[: len(kind.items(node))])
    kind.dress(twin, node, inside)
    return twin
