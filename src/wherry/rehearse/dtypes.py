"""Dtypes that a device does not have: what it refuses where tensors are made, cast and moved, or computed with.

An allocation asks `Place.lacks`, which `equip` fills from the words of the backend (`Wording.no_dtype`): the tensor that a
factory is about to make here, the result of an op in `mode` and `records`. A copy that casts asks `Wording.no_cast`, since
a kernel does it, and does it on the side that the bytes come from: from the host it is the host's.

A device may hold a dtype that its kernels do not compute in: an Intel GPU without float64 (`Profile.no_compute`). There
`limited` asks, of an op that does more than move, cast and compare, what it takes and what it made.

What surprises: the CPU's own code makes wider tensors where that of the device would not, and those are no fault of the
program. `fit` tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherry.backends._backend import Backend
from wherry.dispatch import OpOverload, autograd_node, overload_named, signature
from wherry.rehearse.absence import exception
from wherry.rehearse.records import FLOATING, mark_all, operands_of, refuse, residence
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

_Words = Mapping[torch.dtype, tuple[type[Exception], str]]


def equip(session: Rehearsal) -> None:
    """Write on the devices of a rehearsal which dtypes they lack, or do not compute in."""
    lacks = _resolved(session.backend.wording.no_dtype)
    unable = _resolved(session.profile.no_compute)
    for place in session.places:
        place.lacks = lacks
        place.unable = unable


def _resolved(words: Mapping[str, tuple[str, str]]) -> _Words:
    errors = {getattr(torch, name): exception(kind, text) for name, (kind, text) in words.items()}
    return {dtype: (type(error), str(error)) for dtype, error in errors.items()}


@cache
def _no_cast(backend: Backend) -> _Words:
    return _resolved(backend.wording.no_cast)


# -- before a tensor is made


def asked(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.dtype | None:
    """The dtype that a factory, or a copy with options, is asked for: by name, or by the tensor that it makes one like."""
    dtype = kwargs.get("dtype")
    return args[0].dtype if dtype is None and args and isinstance(args[0], Tensor) else dtype


def check_new(session: Rehearsal, name: str, dtype: torch.dtype | None, place: Place) -> None:
    """Raise what a device raises before a factory, or a copy with options, makes a tensor of a dtype at `place`.

    Where nobody asks for a dtype it is the default one, which is seen on the result.
    """
    if dtype in place.lacks:
        refuse(place, dtype)
    if place.index is None or name.startswith(_WITHOUT_KERNEL):
        return
    no_cast = _no_cast(session.backend)
    if dtype in no_cast:
        kind, text = no_cast[dtype]
        raise kind(text)


def check_cast(session: Rehearsal, source: Tensor, origin: Place, dtype: torch.dtype) -> None:
    """Raise what a copy of a tensor that is at `origin` raises, if it makes another dtype of it there."""
    if origin.index is None or source.dtype is dtype or source.numel() == 0:
        return
    no_cast = _no_cast(session.backend)
    for unknown in (dtype, source.dtype):
        if unknown in no_cast:
            kind, text = no_cast[unknown]
            raise kind(text)


# -- after an op has run


def fit(session: Rehearsal, func: OpOverload, operands: tuple[Any, ...], out: Any, here: Place) -> Any:
    """Record what an op returned on a device that lacks dtypes, or raise what it raises instead of such a result.

    Args:
        session: Whose device it is.
        func: The op.
        operands: Its arguments.
        out: What the CPU's kernel returned.
        here: Where the op ran.
    """
    if isinstance(out, Tensor) and out.dtype in here.lacks:
        own = _own_dtype(session, func, operands)
        if own is not None:
            out = overload_named("_to_copy")._op(out, dtype=own)
        elif _is_helper(operands, here):
            mark_all(out, FLOATING)
    mark_all(out, here)
    return out


def _own_dtype(session: Rehearsal, func: OpOverload, operands: tuple[Any, ...]) -> torch.dtype | None:
    """The dtype that a device gives the result of an op for which it is not the CPU's."""
    virtual = session.backend.virtual
    packet = signature(func).name.removeprefix("aten::").partition(".")[0]
    if virtual is None or packet not in virtual.narrower:
        return None
    last = [operand for operand in operands if isinstance(operand, Tensor)][-1]
    name = virtual.narrower[packet].get(str(last.dtype).removeprefix("torch."))
    return None if name is None else getattr(torch, name)


def _is_helper(operands: tuple[Any, ...], here: Place) -> bool:
    """Whether a result is an intermediate one of C++ code that the device would compute in a narrower dtype.

    It comes of a floating helper that is as wide (the tolerances of `linalg.matrix_rank`: native/BatchLinearAlgebra.cpp,
    `get_atol_rtol`), or of a derivative that asks for the type that the CPU accumulates in (`renorm_backward` in
    torch/csrc/autograd/FunctionsManual.cpp; ATen/AccumulateType.h). Its own results float too.
    """
    wide = (t for t in operands if isinstance(t, Tensor) and t.dtype in here.lacks)
    return any(residence(t) is FLOATING for t in wide) or autograd_node() in _ACCUMULATING


WIDENING = frozenset({"quantile", "nanquantile"})
"""Functions that compute their ranks in float64, but on MPS (native/Sorting.cpp, `quantile_compute`, since torch 2.14)."""

_ACCUMULATING = frozenset({"RenormBackward0"})

_WITHOUT_KERNEL = ("aten::_to_copy", "aten::empty", "aten::new_empty", "aten::zeros", "aten::new_zeros")
"""Ops that copy bytes, write none, or zeros: they need no kernel that knows the dtype."""


# -- what computes


def check_operands(session: Rehearsal, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise what a kernel raises that would compute with its operands, in a dtype in which the device does not compute.

    One of no dimension is cast to the dtype of the others; where it is not, the result says so.
    """
    for operand in operands_of(func, args, dict(kwargs)):
        if operand.tensor.dim() > 0:
            _check_computed(session, func, operand.tensor)


def check_result(session: Rehearsal, func: OpOverload, out: Any) -> None:
    """Raise what a kernel raises instead of a result of a dtype in which the device does not compute."""
    if isinstance(out, Tensor):
        _check_computed(session, func, out)
    elif isinstance(out, list | tuple):
        for item in out:
            check_result(session, func, item)


def _check_computed(session: Rehearsal, func: OpOverload, tensor: Tensor) -> None:
    words = residence(tensor).unable.get(tensor.dtype)
    if words is None or tensor.numel() == 0 or autograd_node() in _ACCUMULATING:
        return
    name = session.profile.no_compute_by_op.get(_base(signature(func).name))
    kind, text = words if name is None else (type(exception(*name)), name[1])
    raise kind(text)


@cache
def computes_nothing(backend: Backend, func: OpOverload) -> bool:
    """Whether an op is no kernel of its own that computes: a view, a move, a cast, a comparison, an op made of others.

    Or one that goes through the CPU whatever its dtype.
    """
    sig = signature(func)
    packet = sig.name.removeprefix("aten::").partition(".")[0]
    base = _base(sig.name)
    if func.namespace != "aten" or sig.implicit or not (sig.fresh or sig.outputs):
        return True
    if backend.kernels is not None:
        falls_back = (name for name, span in backend.kernels.falls_back.items() if span.holds(torch.__version__))
        if packet in {name.partition(".")[0] for name in falls_back}:
            return True
    return base in _MOVING or base.startswith(_FILLING) or base.endswith(_COPYING)


def _base(name: str) -> str:
    """What an op does, whichever way: "aten::_foreach_copy_" -> "copy"."""
    return name.removeprefix("aten::").partition(".")[0].removeprefix("_foreach_").strip("_")


_FILLING = ("empty", "new_", "zeros", "ones", "full", "fill", "zero")
_COPYING = ("copy", "_scatter")
_MOVING = frozenset(
    """
    any all cat channel_shuffle clone complex constant_pad_nd contiguous copy_from_and_resize copy_from diag_embed
    diagonal_backward embedding eq equal eye flip gather ge gt index index_fill index_put index_put_impl index_select isnan le
    lift local_scalar_dense logical_and logical_not logical_or logical_xor lt masked_fill masked_select ne nonzero
    nonzero_static pin_memory pixel_shuffle pixel_unshuffle record_stream reflection_pad1d reflection_pad2d
    reflection_pad3d repeat replication_pad1d replication_pad2d replication_pad3d resize resize_as roll rot90 scalar_tensor
    scatter select_backward set slice_backward stack swap take tril triu unsafe_index unsafe_index_put where
    """.split()
)
"""Ops whose kernels load, store, convert and compare, and do not reckon (`_base`).

Source: which instructions need no float64 of the device is said in intel/llvm, llvm/lib/SYCLLowerIR/
SYCLPropagateAspectsUsage.cpp, `isFP64ConversionInstruction`. Which kernel is compiled to them was not seen: where one may be
(`where`, `tril`), it runs here.
"""
