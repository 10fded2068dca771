"""Records of residency: reading and writing where storages live, on the way through the dispatch mode.

What a record is stands in `wherry.storage`; here are the places every rehearsal knows (the host, pinned host memory,
floating), and the functions that find the operands of a call with their places and mark what an op returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from wherry import callsite
from wherry.dispatch import OpOverload, parts, signature, without_functions
from wherry.storage import Place, Resident, host, place_of, unmarked

CPU = torch.device("cpu")
HOST = host()
PINNED = place_of(CPU, pinned=True)
FLOATING = Place(CPU)  # not in the registry of places: nothing resides there for good
UNMARKED = unmarked()


def _unlimited(place: Place, nbytes: int) -> None:
    """No limit is watched."""


over_limit: Callable[[Place, int], None] = _unlimited
"""Called when a place holds more than its limit, with the bytes that were too many; `accounting` sets it."""


def refuse(place: Place, dtype: torch.dtype) -> None:
    """Raise what the device of a place raises where a tensor of a dtype is made that it does not have.

    The hot path asks `place.lacks` itself. A floating helper is not asked: it may be one that the device would not make.
    """
    if dtype in place.lacks:
        kind, text = place.lacks[dtype]
        raise kind(text)


_get_frame = sys._getframe
_is_library = callsite.library.get


def mark(storage: torch.UntypedStorage, place: Place) -> None:
    """Write down where a new storage resides and which line of the program made it.

    On the hot path, so `write` stands here once more, without its call (60 ns; benchmarks/dispatch_overhead.py).
    """
    frame = _get_frame(2)  # the caller of what called this is the mode, or a frame above it
    code = frame.f_code
    while (library := _is_library(code.co_filename)) is not False:
        if library is None:
            callsite.is_library(code.co_filename)
            continue
        outer = frame.f_back
        if outer is None:
            break
        frame = outer
        code = frame.f_code
    if place.index is None:  # the host; a floating storage. What is computed from pinned memory is pageable.
        storage._wherry_record = (HOST if place is PINNED else place, code, frame.f_lasti)  # type: ignore[attr-defined]
        return
    nbytes = (storage.nbytes() + 511) & -512
    storage._wherry_record = Resident((place, code, frame.f_lasti, nbytes))  # type: ignore[attr-defined]
    place.allocations += 1
    place.allocated = allocated = place.allocated + nbytes
    if allocated > place.ceiling and place.rise():
        over_limit(place, nbytes)


def origin() -> tuple[CodeType | None, int]:
    """The code object and instruction of the program's line that is running; None where there is none."""
    frame = callsite.user_frame(_get_frame(2))
    return (None, -1) if frame is None else (frame.f_code, frame.f_lasti)


def mark_list(out: Sequence[Tensor], place: Place) -> None:
    """Record the new storages of a list: one line made them all."""
    line = None
    where = HOST if place is PINNED else place
    for item in out:
        if item.__class__ is not Tensor:
            mark_all(item, place)
            continue
        try:
            storage = item.untyped_storage()
        except NotImplementedError:
            mark_all(item, place)
            continue
        if storage._wherry_record is UNMARKED and not item.is_meta:  # type: ignore[attr-defined]
            if where.lacks:
                refuse(where, item.dtype)
            if line is None:
                line = origin()
            write(storage, where, *line)


def float_beside(out: Any, companion: Tensor | None) -> None:
    """Mark a helper as floating, and note where it goes should it never meet an operand: where `companion` is."""
    mark_all(out, FLOATING)
    if companion is not None and isinstance(out, Tensor):
        record = storage_of(out)._wherry_record  # type: ignore[attr-defined]
        if record[0] is FLOATING:
            storage_of(out)._wherry_record = (*record, residence(companion))  # type: ignore[attr-defined]


def haven(tensor: Tensor, otherwise: Place) -> Place:
    """Where a floating tensor goes that never met an operand."""
    try:
        record = storage_of(tensor)._wherry_record  # type: ignore[attr-defined]
    except NotImplementedError:
        return otherwise
    place = record[3] if len(record) > 3 else otherwise
    return HOST if place is FLOATING else place


def block_nbytes(storage: torch.UntypedStorage) -> int:
    """What a storage takes from a device: whole blocks of 512 bytes (c10/core/AllocatorConfig.h, `kMinBlockSize`)."""
    return (storage.nbytes() + 511) & -512


def write(storage: torch.UntypedStorage, place: Place, code: CodeType | None, instruction: int) -> None:
    """Give a storage a record whose line is known, and count its bytes where it resides from now on."""
    if place.index is None:
        storage._wherry_record = (place, code, instruction)  # type: ignore[attr-defined]
        return
    nbytes = block_nbytes(storage)
    storage._wherry_record = Resident((place, code, instruction, nbytes))  # type: ignore[attr-defined]
    place.allocations += 1
    place.allocated += nbytes
    if place.allocated > place.ceiling and place.rise():
        over_limit(place, nbytes)


class Operand(NamedTuple):
    """A tensor argument of an op."""

    name: str  # of the argument; a list argument gives its name to each of its tensors
    index: int | None  # in a list argument
    tensor: Tensor
    place: Place
    keyword_only: bool
    output: bool


def operands_of(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Operand]:
    """Every tensor argument of a call, in schema order."""
    sig = signature(func)
    named = zip(sig.arguments, args, strict=False)  # arguments that are left out are their defaults
    for position, (name, value) in enumerate((*named, *kwargs.items())):
        keyword_only = position >= len(args)
        output = name in sig.outputs
        if isinstance(value, Tensor):
            yield Operand(name, None, value, residence(value), keyword_only, output)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                if isinstance(item, Tensor):
                    yield Operand(name, index, item, residence(item), keyword_only, output)


def storage_of(tensor: Tensor) -> torch.UntypedStorage:
    """The storage of a tensor, without running the `__torch_function__` of a subclass.

    Raises:
        NotImplementedError: it has none of its own.
    """
    cls = type(tensor)
    if cls is Tensor or cls is Parameter:
        return tensor.untyped_storage()
    with without_functions():
        return tensor.untyped_storage()


def residence(tensor: Tensor) -> Place:
    """Where a tensor lives: its storage's place, or that of its parts."""
    try:
        if not is_wrapper(type(tensor)):
            return storage_of(tensor)._wherry_record[0]  # type: ignore[attr-defined]
    except NotImplementedError:
        own = tensor.__dict__.get("_wherry_place")  # a tensor whose parts cannot be had: opaque (MKLDNN)
        if own is not None:
            return own
    found = HOST
    for part in parts(tensor):
        found = residence(part)
        if found.index is not None:
            break
    return found


def is_wrapper(cls: type[Tensor]) -> bool:
    """Whether tensors of a class unwrap themselves (DTensor, jagged tensors): their own storage is empty."""
    return cls is not Tensor and cls.__torch_dispatch__ is not Tensor.__torch_dispatch__


def mark_all(out: Any, place: Place) -> None:
    """Record every new storage in what an op returned."""
    if isinstance(out, Tensor):
        try:
            storage = storage_of(out)
        except NotImplementedError:
            inner = list(parts(out))
            for part in inner:
                mark_all(part, place)
            if not inner:
                out.__dict__["_wherry_place"] = place
            return
        if storage._wherry_record is UNMARKED and not out.is_meta:  # type: ignore[attr-defined]
            if place.lacks:
                refuse(place, out.dtype)
            mark(storage, place)
    elif isinstance(out, list | tuple):
        mark_list(out, place)


def move_record(tensor: Tensor, place: Place) -> None:
    """A floating storage comes to reside somewhere; what was recorded of its making stays."""
    try:
        storage = storage_of(tensor)
    except NotImplementedError:
        for part in parts(tensor):
            move_record(part, place)
        return
    _, code, instruction = storage._wherry_record[:3]  # type: ignore[attr-defined]
    write(storage, place, code, instruction)


def move_all(out: Any, place: Place) -> None:
    """What was built on the host was really built at `place`: rewrite every record, keeping the line that made it."""
    if isinstance(out, Tensor):
        refuse(place, out.dtype)
        move_record(out, place)
    elif isinstance(out, list | tuple):
        for item in out:
            move_all(item, place)


def settle_all(out: Any, place: Place) -> None:
    """What an op returned that is still floating, or has no record yet, resides at `place`. Meta tensors reside nowhere."""
    if isinstance(out, Tensor):
        if out.is_meta:
            return
        where = residence(out)
        if where is FLOATING:
            move_record(out, place)
        elif where is HOST:
            mark_all(out, place)
    elif isinstance(out, list | tuple):
        for item in out:
            settle_all(item, place)
