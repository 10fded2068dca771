"""Ops that the hot path of `mode` cannot treat alike: they name a device, draw, move, or exchange storages.

`of(overload)` answers which of the functions below an overload goes through, or None for the many that need none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from wherry.dispatch import OpOverload, signature
from wherry.rehearse import exceptions, laws
from wherry.rehearse.accounting import reserve
from wherry.rehearse.randomness import drawing_at
from wherry.rehearse.records import CPU, FLOATING, HOST, UNMARKED, mark, mark_all, operands_of, residence, write
from wherry.rehearse.undeclared import is_explicit_call
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.mode import Mode

Special = Callable[["Mode", OpOverload, tuple[Any, ...], dict[str, Any]], Any]


def of(func: OpOverload) -> Special | None:
    """The function an overload goes through, or None for the common path."""
    sig = signature(func)
    packet = sig.name.removeprefix("aten::").split(".", 1)[0]
    if packet in _BY_NAME:
        return _BY_NAME[packet]
    if sig.device is not None:
        return with_device
    if sig.random:
        return draw
    return None


def with_device(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op with a `device` argument: a factory, a `*_like`, a `new_*`, a copy with options."""
    sig = signature(func)
    position = sig.device
    assert position is not None
    positional = position < len(args)
    device = args[position] if positional else kwargs.get("device")
    if device is not None and device.type == "meta":
        return func._op(*args, **kwargs)

    explicit = "pin_memory" in kwargs
    origin = _common_place(mode, func, args, kwargs)
    place = _destination(mode, sig.name, device, explicit=explicit, origin=origin)
    kwargs = dict(kwargs)
    if kwargs.get("pin_memory"):
        place = mode.session.pinned(place)
        kwargs["pin_memory"] = False
    if device is not None and device.type != "cpu":
        if positional:
            args = (*args[:position], CPU, *args[position + 1 :])
        else:
            kwargs["device"] = CPU
    if place.limit is not None:
        reserve(place, func, args, kwargs)
    out = drawing_at(place, sig, func._op, args, kwargs) if sig.random else func._op(*args, **kwargs)
    mode.ambient = place
    mark_all(out, place)
    if origin is not None and origin is not place:
        mode.session.moved(origin, place, out)
    return out


def _common_place(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Place | None:
    """Where the operands of a factory-like op reside: the first one speaks for them. None without operands."""
    for operand in mode.settle(tuple(operands_of(func, args, kwargs))):
        return operand.place
    return None


def _destination(mode: Mode, name: str, device: torch.device | None, *, explicit: bool, origin: Place | None) -> Place:
    """Where the result of an op with a `device` argument resides."""
    if name == "aten::_to_copy" and mode.target is not None:
        target, mode.target = mode.target, None
        return target
    if device is None:
        if origin is not None:
            return origin
        return HOST if explicit else FLOATING
    if device.type != "cpu":
        return mode.session.resolve(device)
    if explicit:
        return HOST
    if origin is not None:
        return origin  # `options()` of a tensor that really is on the CPU: the helper follows it
    return HOST if is_explicit_call() else FLOATING


def draw(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that draws random numbers: from the stream of the device where its operands reside."""
    operands = mode.settle(tuple(operands_of(func, args, kwargs)))
    places = {operand.place for operand in operands}
    if len(places) > 1:
        verdict = laws.judge(mode.session.backend, func, operands, args, kwargs)
        if verdict is laws.DECOMPOSE:
            return mode.decompose(func, args, kwargs)
        here = verdict
    else:
        here = next(iter(places), HOST)
    out = drawing_at(here, signature(func), func._op, args, kwargs)
    mode.ambient = here
    mark_all(out, here)
    return out


def copy_(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`dst.copy_(src)` joins any two places, and is how bytes move without a new storage."""
    dst, src = args[0], args[1]
    mode.settle(tuple(operands_of(func, args, kwargs)))
    out = func._op(*args, **kwargs)
    if isinstance(dst, torch.Tensor) and isinstance(src, torch.Tensor):
        there, here = residence(src), residence(dst)
        if there is not here:
            mode.session.moved(there, here, dst)
    return out


def lift_fresh(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tensor that `torch.tensor` or `torch.from_numpy` just made on the host: note who made it."""
    out = func._op(*args, **kwargs)
    try:
        storage = out.untyped_storage()
    except NotImplementedError:
        return out
    if storage._wherry_record is UNMARKED:
        mark(storage, HOST)
    return out


def resize_(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`resize_` and `set_()` may change how many bytes a storage holds, or give a tensor an empty one of its own."""
    here = residence(args[0])
    if func._schema.name == "aten::set_":
        _check_set(here, args)
    out = func._op(*args, **kwargs)
    storage = args[0].untyped_storage()
    record = storage._wherry_record
    if record is UNMARKED:
        mark(storage, here)
    elif record[0].index is not None and record[3] != storage.nbytes():
        write(storage, *record[:3])
    return out


def _check_set(here: Place, args: tuple[Any, ...]) -> None:
    source = args[1] if len(args) > 1 else None
    if isinstance(source, torch.Tensor):
        exceptions.check_set(here, residence(source))
    elif isinstance(source, torch.UntypedStorage):
        place = source._wherry_record[0]  # type: ignore[attr-defined]
        if place is not FLOATING and args[0].untyped_storage().nbytes():
            exceptions.check_set(here, place)


def batch_sizes_on_host(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_pack_padded_sequence` returns its `batch_sizes` on the host whatever the input (PackedSequence.cpp)."""
    data, lengths = args[0], args[1]
    exceptions.check_lengths(lengths, residence(lengths))
    packed, batch_sizes = func._op(*args, **kwargs)
    mark_all(packed, residence(data))
    mark_all(batch_sizes, HOST)
    return packed, batch_sizes


_BY_NAME: dict[str, Special] = {
    "copy_": copy_,
    "lift_fresh": lift_fresh,
    "lift_fresh_copy": lift_fresh,
    "resize_": resize_,
    "set_": resize_,
    "_pack_padded_sequence": batch_sizes_on_host,
}
