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
from wherry.move.walk import Skip, Walk


def look_into(obj: Any, skip: Skip | None) -> Walk:
    """What is seen inside of an object, and of others of its sort in it."""
    kind = kinds.parts_of(type(obj))
    return Walk(None) if kind is None else Walk(obj, kind=kind, skip=skip, through=True)


def is_there(look: Walk, order: Order) -> bool:
    """Whether all that is seen of an object is where it should be; not where nothing is seen."""
    if any(role is not Role.MODULE for role, _ in look.found):
        return False
    tensors = [*look.tensors, *(tensor for _, module in look.found for tensor in in_place.tensors_of(module))]
    return bool(tensors) and not any(map(order.concerns, tensors))


def moved(obj: Any, look: Walk, order: Order, changed: Mapping[int, Any]) -> Any:
    """What the `.to` of a twin of an object makes.

    Args:
        obj: The object.
        look: What is seen in it.
        order: Where to, and as what.
        changed: What has moved otherwise, by identity: the same tensor is to be the same object here.
    """
    if look.root is not obj:  # made in C, or in a way that is not ours to repeat
        return _result(_copied(obj), order)
    memo = _stand_ins(look, order)
    twin = look.rebuilt(memo, all_new=True)
    result = _result(twin, order)
    kind = kinds.parts_of(type(result))
    if kind is None:
        return result
    after = Walk(result, kind=kind, skip=look.skip, through=True)
    again: dict[int, Any] = {}
    if len(after.tensors) == len(look.tensors):
        first: dict[int, Any] = {}
        for before, now in zip(look.tensors, after.tensors, strict=True):
            if now.device == order.device and now.shape == before.shape:
                one = changed[id(before)] if id(before) in changed else first.setdefault(id(before), now)
                if one is not now:
                    again[id(now)] = one
    if after.take_skipped_from(look):
        return after.rebuilt(again, all_new=True)
    return after.rebuilt(again) if again else result


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


def _stand_ins(look: Walk, order: Order) -> dict[int, Any]:
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
                memo[id(inner)] = copy.deepcopy(inner, dict(memo))
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
