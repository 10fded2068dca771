"""Objects with a `.to` of their own: it knows what moves, and we see to the rest.

Many such methods change the object itself, some return nothing, few know of shared tensors or of dtypes. So `.to` is called
on a twin, made of new containers, which hold other tensors over the same bytes (`moved`): whatever it does to them, the
caller's object stays. What it leaves where it is, such as lengths that a kernel wants on the host, stays there. Afterwards
what was one tensor before is one again.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wherry.move import in_place, kinds
from wherry.move.kinds import Role
from wherry.move.tensors import Order, carry
from wherry.move.walk import Path, Skip, Walk


def look_into(obj: Any, skip: Skip | None) -> Walk:
    """What is seen inside of an object, and of others of its sort in it."""
    kind = kinds.parts_of(type(obj))
    return Walk(None) if kind is None else Walk(obj, kind=kind, skip=skip, through=True)


def is_there(look: Walk, order: Order) -> bool:
    """Whether all that is seen of an object is where it should be; not where nothing is seen."""
    tensors = list(look.tensors)
    for role, inner in look.found:
        if role is Role.MODULE:
            tensors += in_place.tensors_of(inner)
        elif role not in kinds.IN_PLACE:
            return False
    return bool(tensors) and not any(map(order.concerns, tensors))


def moved(obj: Any, look: Walk, order: Order, changed: Mapping[int, Any], copies: dict[int, Any]) -> Any:
    """What the `.to` of a twin of an object makes.

    Args:
        obj: The object.
        look: What is seen in it.
        order: Where to, and as what.
        changed: What takes the place of what otherwise, by identity: the same tensor is to be the same object here.
        copies: With order.copy, what was copied deeply: the memo of `copy.deepcopy`, for all objects of a movement.
    """
    if look.root is not obj:  # made in C, or in a way that is not ours to repeat
        return _result(_copied(obj), order)
    memo = _stand_ins(look, order, changed, copies)
    twin = look.rebuilt(memo, all_new=True)
    places = look.places()
    held = {path: look.part(place) for path, place in places.items()}  # before `.to` changes anything
    result = _result(twin, order)
    kind = kinds.parts_of(type(result))
    return result if kind is None else _tied(result, Walk(result, kind=kind, through=True), look, held, changed)


def _tied(
    result: Any,
    after: Walk,
    look: Walk,
    held: Mapping[Path, Any],
    changed: Mapping[int, Any],
) -> Any:
    """The result with what was one tensor as one tensor, and what was to be skipped as it was."""
    again: dict[int, Any] = {}
    first: dict[int, Any] = {}
    places = after.places()
    for path, before in held.items():
        now = after.part(places[path]) if path in places else None
        if isinstance(before, Tensor) and isinstance(now, Tensor):
            one = changed[id(before)] if id(before) in changed else first.setdefault(id(before), now)
            if one is not now and _are_alike(now, one):
                again[id(now)] = one
    where = {place: path for path, place in look.places().items()}
    any_skipped = False
    for place, value in look.skipped():
        path = where.get(place)
        if path in places:
            after.keep(places[path], value)
            any_skipped = True
    return after.rebuilt(again, all_new=any_skipped) if again or any_skipped else result


def _are_alike(now: Tensor, one: Tensor) -> bool:
    """Whether `.to` did nothing to a tensor but move it, so that another copy of it will do."""
    alike = (now.device, now.dtype, now.shape) == (one.device, one.dtype, one.shape)
    return alike and (now.is_meta or now.layout is not torch.strided or bool(torch.equal(now, one)))


def _result(twin: Any, order: Order) -> Any:
    result = call_to(twin, order.device, order.dtype)
    return twin if result is None else result


def _copied(obj: Any) -> Any:
    to = inspect.getattr_static(type(obj), "to", None)
    return (
        copy.copy(obj)
        if inspect.isfunction(to) and not isinstance(obj, torch.UntypedStorage | torch.TypedStorage)
        else obj
    )


def _stand_ins(look: Walk, order: Order, changed: Mapping[int, Any], copies: dict[int, Any]) -> dict[int, Any]:
    """What the twin holds instead: tensors of the dtype that is wanted, copies if copies are, else aliases."""
    memo: dict[int, Any] = {}
    for device in {tensor.device for tensor in look.tensors}:
        here = [tensor for tensor in look.tensors if tensor.device == device]
        memo.update(carry(here, replace(order, device=device, queues=False), plain=False))
    for tensor in look.tensors:
        if id(tensor) not in memo and type(tensor) is Tensor and not tensor.requires_grad and not vars(tensor):
            memo[id(tensor)] = tensor.detach()
    if order.copy:
        for role, inner in look.found:
            if role is not Role.MOVER:
                memo[id(inner)] = changed[id(inner)] if id(inner) in changed else copy.deepcopy(inner, copies)
    return memo


def call_to(obj: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """Call an object's own `to`, with the dtype if it takes one."""
    try:
        takes = list(inspect.signature(obj.to).parameters.values())
    except (TypeError, ValueError):
        return obj.to(device)
    by_name = {parameter.name for parameter in takes}
    anything = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in takes)
    options: dict[str, Any] = {}
    if dtype is not None and "dtype" in by_name:
        options["dtype"] = dtype
    if takes and takes[0].kind is takes[0].KEYWORD_ONLY:
        return obj.to(**{takes[0].name: device}, **options)
    if dtype is not None and anything and not options and isinstance(obj, torch.nn.Module):
        return obj.to(device, dtype)
    return obj.to(device, **options)
