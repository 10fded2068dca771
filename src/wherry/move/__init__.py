"""Any nested object to one device: everything arrives, and nothing is lost on the way.

`move` is the function. It looks through the object (`walk`, by what `kinds` says of each class), has the tensors copied
(`tensors`), and gives the same object with the copies in it; modules and optimizers take theirs in place (`in_place`). Where
to is read by `destination`; `foreign` makes arrays of NumPy and MLX.

What is already there costs a look: benchmarks/move.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar, overload

import torch

from wherry.errors import BadOption
from wherry.move.destination import destination_of
from wherry.move.movement import Movement, Wish
from wherry.move.short import short_way
from wherry.move.traced import traced
from wherry.move.walk import Skip, Walk

T = TypeVar("T")

DTYPES = ("torch.float32", "torch.bfloat16", "torch.float16", "torch.float64")  # the usual ones
FLOAT64 = ("convert", "error")
STRAYS = ("warn", "move", "error", "ignore")


@overload
def move(
    obj: object,
    device: Literal["numpy", "mlx"],
    *,
    dtype: torch.dtype | None = ...,
    non_blocking: bool = ...,
    skip: str | type | Iterable[str | type] = ...,
    copy: bool = ...,
    float64: Literal["convert", "error"] = ...,
    strays: Literal["warn", "move", "error", "ignore"] = ...,
) -> Any: ...


@overload
def move(
    obj: T,
    device: torch.device | str | int,
    *,
    dtype: torch.dtype | None = ...,
    non_blocking: bool = ...,
    skip: str | type | Iterable[str | type] = ...,
    copy: bool = ...,
    float64: Literal["convert", "error"] = ...,
    strays: Literal["warn", "move", "error", "ignore"] = ...,
) -> T: ...


def move(
    obj: T,
    device: torch.device | str | int,
    *,
    dtype: torch.dtype | None = None,
    non_blocking: bool = True,
    skip: str | type | Iterable[str | type] = (),
    copy: bool = False,
    float64: Literal["convert", "error"] = "convert",
    strays: Literal["warn", "move", "error", "ignore"] = "warn",
) -> T:
    """Move every tensor inside a nested object to one device.

    Containers keep their class, their attributes and their order, and are never changed themselves: the result is a new one
    where something in it moves, and the very same object where nothing does. What appears twice appears twice
    afterwards, tensors that share a storage share one, and an object may contain itself. Leaves of autograd stay leaves with
    their `.grad`; what has a history stays connected to it.

    Modules, optimizers, learning rate schedulers and gradient scalers move in place, as `Module.to` does: the same objects
    with the same parameters. An optimizer's state moves, its parameters do not, since they are the model's.

    Args:
        obj: Tensors of any kind in containers of any kind: dicts, lists, tuples, sets, deques and what derives from them,
            dataclasses, attrs, plain objects, registered pytree nodes, PackedSequence, objects with a `.to(device)` of their
            own, modules, optimizers, arrays of MLX; or one of those.
        device: Where the storages should reside: "cuda:1", "mps", "rocm", a torch.device. Also "meta", and "numpy" or "mlx"
            for arrays of those libraries instead of tensors.
        dtype: What floating point tensors become, too. Others keep theirs.
        non_blocking: Let the host run ahead where that is real: from pinned memory to a device with streams, and between
            devices. What comes to the host is complete when this returns, in any case.
        skip: Keys and names of attributes whose values are left where they are, at any depth outside of modules; or classes.
        copy: Copy what is already there, too: the result shares nothing with `obj`. Modules and optimizers are
            then copied, and those in `obj` stay as they are.
        float64: What becomes of float64 and complex128 on a device that has none: "convert" makes them float32 and complex64 and
            warns once, with the name of the first; "error" refuses.
        strays: What to do about tensors that hang in a module but are neither its parameters nor its buffers, so that no
            `.to` moves them: "warn" names those that stayed elsewhere and the lasting fix, "move" moves them, "error"
            refuses before anything moves, "ignore" says nothing.

    Returns:
        The same structure, with everything on `device`.

    Raises:
        UnknownDevice: nobody answers to `device`, or there is no such index.
        DeviceAbsent: the device is known, but not here.
        UnmovableLeaf: something could not be copied. The message gives its path; the cause is chained. Nothing has moved then,
            modules and optimizers included. Where the device has no room it is a torch.OutOfMemoryError, too.
        StrayTensors: with strays="error", a module has some.
        BadOption: `float64` or `strays` is none of these words, `dtype` is none of floating point, `skip` is no name or class.
        MissingExtra: NumPy or MLX is asked for and not installed.

    >>> batch = {"tokens": torch.tensor([1, 2]), "lengths": (2,)}
    >>> move(batch, "cpu") is batch
    True
    >>> move(batch, "meta")
    {'tokens': tensor(..., device='meta', size=(2,), dtype=torch.int64), 'lengths': (2,)}

    Source: torch.Tensor.to and torch.nn.Module.to; PyTorch tutorial "A guide on good usage of non_blocking and pin_memory()".
    """
    if torch.compiler.is_compiling():  # it is being traced: what is looked at here, torch.compile cannot follow
        return traced(obj, device, dtype)
    target = destination_of(device)
    plain = not skip and not copy and dtype is None and float64 == "convert" and strays == "warn"
    if plain and target.library is None:
        done, result = short_way(obj, target)
        if done:
            return result
    if float64 not in FLOAT64:
        raise BadOption("float64", float64, FLOAT64)
    if strays not in STRAYS:
        raise BadOption("strays", strays, STRAYS)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise BadOption("dtype", dtype, DTYPES)
    skipped = _skip(skip) if skip else None
    if skipped is not None and skipped(None, obj):
        return obj
    walk = Walk(obj, skip=skipped)
    wish = Wish(
        target,
        given=device,
        dtype=dtype,
        non_blocking=non_blocking,
        copy=copy,
        float64=float64,
        strays=strays,
    )
    return Movement(walk, wish).run()


def _skip(skip: str | type | Iterable[str | type]) -> Skip:
    given = (skip,) if isinstance(skip, str | type) or not isinstance(skip, Iterable) else tuple(skip)
    for item in given:
        if not isinstance(item, str | type):
            raise BadOption("skip", item, ("name of a key", "name of an attribute", "class"))
    names = frozenset(item for item in given if isinstance(item, str))
    return Skip(names, tuple(item for item in given if isinstance(item, type)))
