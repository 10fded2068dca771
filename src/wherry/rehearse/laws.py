"""Which operands may meet: what the real backend would say to an op whose tensors reside at different places.

Three things decide on real hardware (PyTorch 2.6 to 2.14):

1. the check that torchgen writes around a kernel, for CUDA and XPU (`native_functions`): out arguments first, then
   positional ones, keyword-only tensors never, 0-dim tensors not exempt;
2. TensorIterator (aten/src/ATen/TensorIterator.cpp, `compute_types`): every operand on the first device that is not the
   host, except that binary ops accept *one* 0-dim input from the host;
3. checks in the code of a few ops, which stand in `exceptions`, each with its source.

A composite op has no law of its own: it is run so that the ops it is made of are seen (`DECOMPOSE`). MPS has no
generated check; what it says instead differs by kernel and release.

`judge` returns the place where the op runs, or raises what the device would raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from wherry.backends._backend import Backend
from wherry.dispatch import OpOverload, signature
from wherry.native_functions import native, wrapper_name
from wherry.ops.catalog import OF_THE_HOST
from wherry.rehearse import exceptions
from wherry.rehearse.exceptions import DECOMPOSE, Decompose
from wherry.rehearse.wording import no_kernel, one_device, output_elsewhere, shapes_apart, too_many_scalars, two_devices
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.records import Operand


EITHER_OPERAND = frozenset(
    [
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "floor_divide",
        "true_divide",
        "remainder",
        "fmod",
        "pow",
        "atan2",
        "hypot",
        "copysign",
        "heaviside",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_left_shift",
        "bitwise_right_shift",
        "__lshift__",
        "__rshift__",
        "xlogy",
        "special_xlog1py",
        "special_zeta",
        *(f"special_{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
        "special_hermite_polynomial_h",
        "special_hermite_polynomial_he",
        "special_laguerre_polynomial_l",
        "special_legendre_polynomial_p",
        "dist",
        "ldexp",
    ]
)
"""Ops whose iterator allows one 0-dim host operand, whichever it is. Seen on the host code of the CUDA build of 2.13."""

SECOND_OPERAND = {
    "logical_and": "other",
    "logical_or": "other",
    "logical_xor": "other",
    "addcmul": "tensor2",
    "lerp": "weight",
}
"""Ops that accept a 0-dim host tensor as this argument only."""


def judge(
    backend: Backend, func: OpOverload, operands: Sequence[Operand], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Place | Decompose:
    """Where an op runs whose operands reside at different places.

    Raises:
        RuntimeError: as the backend's own check words it.
    """
    sig = signature(func)
    name = sig.name.removeprefix("aten::")
    packet = name.split(".", 1)[0]
    rule = exceptions.of(packet)
    if rule is not None:
        arguments = dict(zip(sig.arguments, args, strict=False)) | kwargs
        place = rule(exceptions.Meeting(backend, name, operands, arguments))
        if place is not None:
            return place
    return _general(backend, func, operands, args, kwargs)


def _general(
    backend: Backend, func: OpOverload, operands: Sequence[Operand], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Place | Decompose:
    """The laws that hold for every op without an exception of its own."""
    sig = signature(func)
    name = sig.name.removeprefix("aten::")
    packet = name.split(".", 1)[0]
    entry = native(name)
    prefix = backend.wording.check_prefix
    key = _kernel_key(operands, prefix or "CUDA")
    if entry is None or not has_kernel(backend, func, operands):
        if sig.composite:
            return DECOMPOSE
        # No kernel of its own on a device: the device has no such op, or the CPU build took a way that a device would not.
        if (
            prefix is not None
            and entry is not None
            and _kernel_key(operands, "CPU") in entry.keys
            and not (OF_THE_HOST.search(packet) and not packet.endswith("_backward"))  # what it saved is together
        ):
            raise no_kernel(func, key, args, kwargs)
        return _iterate(packet, operands, shaped=False)
    if not (entry.checked or entry.iterator or entry.resizes):
        return next((o.place for o in operands if o.place.index is not None), operands[0].place)  # nobody looks
    if entry.checked and prefix is not None:
        has_out = any(o.output and o.keyword_only for o in operands)
        _same_device(operands, wrapper_name(name, key=key, structured=entry.structured, has_out=has_out))
        return next(o.place for o in _check_order(operands))
    if entry.resizes:
        _outputs_with_inputs(operands)
    return _iterate(packet, operands, shaped=entry.iterator)


def has_kernel(backend: Backend, func: OpOverload, operands: Sequence[Operand]) -> bool:
    """Whether a device has a kernel for an op as it is. Which do is known for CUDA; XPU's are named alike."""
    entry = native(signature(func).name.removeprefix("aten::"))
    prefix = backend.wording.check_prefix or "CUDA"
    return entry is not None and _kernel_key(operands, prefix).replace(prefix, "CUDA") in entry.keys


def _kernel_key(operands: Sequence[Operand], prefix: str) -> str:
    """The dispatch key whose kernel would take the call, by the layout of the operands."""
    for operand in operands:
        layout = operand.tensor.layout
        if layout is torch.sparse_coo:
            return f"Sparse{prefix}"
        if layout is not torch.strided and layout is not torch.jagged:
            return f"SparseCsr{prefix}"
        if operand.tensor.is_quantized:
            return f"Quantized{prefix}"
        if operand.tensor.is_nested:
            return f"NestedTensor{prefix}"
    return prefix


def _check_order(operands: Sequence[Operand]) -> list[Operand]:
    """The order of a generated check: keyword-only outputs, then positional arguments."""
    out = [o for o in operands if o.keyword_only and o.output]
    return out + [o for o in operands if not o.keyword_only]


def _same_device(operands: Sequence[Operand], wrapper: str) -> None:
    common: Place | None = None
    for operand in _check_order(operands):
        if common is None:
            common = operand.place
        elif operand.place is not common:
            raise one_device(operand.name, operand.place, common, wrapper)


def _outputs_with_inputs(operands: Sequence[Operand]) -> None:
    """A structured op that is no iterator makes its own check of `out`, when the inputs agree."""
    inputs = {o.place for o in operands if not o.output}
    if len(inputs) == 1:
        (expected,) = inputs
        for operand in operands:
            if operand.output and operand.place is not expected:
                raise output_elsewhere(expected, operand.place)


def _iterate(packet: str, operands: Sequence[Operand], *, shaped: bool) -> Place:
    """TensorIterator's rule, which looks at shapes first where there really is one. Returns the common device."""
    inputs = [o for o in operands if not o.output]
    if packet == "rsub":
        inputs.reverse()  # it is sub(other, self)
    ordered = [o for o in operands if o.output] + inputs
    common = next((o.place for o in ordered if o.place.index is not None), ordered[0].place)
    base = packet.removesuffix("_")
    only = SECOND_OPERAND.get(base)
    exempt = 0
    for operand in ordered:
        if operand.place is common:
            continue
        scalar = operand.place.index is None and operand.tensor.dim() == 0 and not operand.output
        if scalar and (base in EITHER_OPERAND if only is None else operand.name == only):
            exempt += 1
            if exempt > 1:
                raise too_many_scalars()
            continue
        raise (shapes_apart(operands) if shaped else None) or two_devices(common, operand.place)
    return common
