"""Ops whose own code says which operands may meet: the exceptions to the general laws, each with its source.

A rule looks at the operands of one call. It returns the place where the op runs, `DECOMPOSE` where the ops it is made of
are to be judged, None to leave the call to the general laws, or raises what the kernel raises. Sources are paths in
PyTorch's repository (2.13) unless they say "seen": observed on the host code of the CUDA build of 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from wherry.backends._backend import Backend
from wherry.dispatch import overload_named
from wherry.rehearse.wording import (
    legacy_name,
    no_kernel,
    not_on_device,
    one_device,
    too_many_scalars,
    two_devices,
    type_name,
)
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.records import Operand


@dataclass(frozen=True, slots=True)
class Meeting:
    """One call whose operands reside at different places.

    Attributes:
        backend: Whose devices they are.
        name: The overload, "index_put_".
        operands: Its tensors with their places, in schema order.
        arguments: All its arguments by name.
    """

    backend: Backend
    name: str
    operands: Sequence[Operand]
    arguments: Mapping[str, object]

    def operand(self, name: str) -> Operand | None:
        """The tensor argument of this name."""
        return next((o for o in self.operands if o.name == name), None)

    @property
    def first(self) -> Place:
        """Where the first tensor argument resides."""
        return self.operands[0].place


class Decompose:
    """The verdict that a composite op is to be run as the ops it is made of."""


DECOMPOSE = Decompose()

Rule = Callable[[Meeting], "Place | Decompose | None"]


def of(packet: str) -> Rule | None:
    """The rule of an op ("index_put_"), or None for the many that follow the general laws."""
    rule = _RULES.get(packet)
    if rule is None and packet.startswith("_foreach_"):
        return foreach
    return rule


def first_decides(call: Meeting) -> Place:
    """Any pair of devices: the op copies, or reads sizes or one value only (copy.cpp, TensorShape.cpp)."""
    return call.first


def index(call: Meeting) -> Place:
    """`x[i]`: indices on the host or with x (native/TensorAdvancedIndexing.cpp `make_info`)."""
    source = call.first
    for operand in call.operands[1:]:
        if operand.name == "indices" and operand.place is not source and operand.place.index is not None:
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({source.name})"
            )
        if operand.output and operand.place is not source:
            raise two_devices(*_accelerator_first(operand.place, source))
    return source


def index_put(call: Meeting) -> Place:
    """`x[i] = v`: indices anywhere; v with x, or 0-dim (native/TensorAdvancedIndexing.cpp `_index_put_impl_`)."""
    source = call.operands[0]
    values = call.operand("values")
    if values is not None and values.place is not source.place and values.tensor.dim() > 0:
        if call.arguments.get("accumulate") and source.place.index is not None:
            raise RuntimeError(
                f"expected device {source.place.name} but got device {values.place.name} for value tensor"
            )
        masked = any(o.name == "indices" and o.tensor.dtype in (torch.bool, torch.uint8) for o in call.operands)
        if not (masked and values.tensor.numel() == 1):  # one value under a mask is masked_fill
            raise two_devices(*_accelerator_first(source.place, values.place))
    return source.place


def masked_fill(call: Meeting) -> Place:
    """The mask with self; a 0-dim value from the host may join (native/cuda/IndexKernel.cpp `masked_fill__cuda`)."""
    source = call.first
    mask = call.operand("mask")
    value = call.operand("value")
    if value is not None and (source.index is None or (value.place is not source and value.tensor.dim() > 0)):
        raise RuntimeError("masked_fill_: Expected inputs to be on same device")
    if mask is not None and mask.place is not source:
        raise RuntimeError(
            f"expected self and mask to be on the same device, but got mask on {mask.place.name} and self on {source.name}"
        )
    return source


def segment_reduce(call: Meeting) -> Place | None:
    """Lengths, indices and offsets with the data (native/SegmentReduce.cpp)."""
    for operand in call.operands[1:]:
        if operand.place is not call.first:
            raise RuntimeError(
                f"Expected data.get_device() == {operand.name}_value.get_device() to be true, but got false.  (Could this error "
                "message be improved?  If so, please report an enhancement request to PyTorch.)"
            )
    return None


def block_diag(call: Meeting) -> Place:
    """One device, by its own words (native/TensorShape.cpp)."""
    for number, operand in enumerate(call.operands):
        if operand.place is not call.first:
            raise RuntimeError(
                "torch.block_diag: input tensors must all be on the same device. Input 0 is on device "
                f"{call.first.name} and input {number} is on device {operand.place.name}"
            )
    return call.first


def cholesky_solve(call: Meeting) -> Place:
    """One device, by its own words (native/LinearAlgebraUtils.h, `linearSolveCheckInputs`)."""
    b, a = call.operands[0].place, call.operands[1].place
    if a is not b:
        raise RuntimeError(
            f"Expected b and A to be on the same device, but found b on {b.name} and A on {a.name} instead."
        )
    return b


def mv(call: Meeting) -> Place | None:
    """A vector like `vec` is made, then filled by addmv_, whose check speaks (native/Blas.cpp)."""
    matrix, vector = call.operands[0], call.operands[1]
    prefix = call.backend.wording.check_prefix
    if prefix is None or matrix.place is vector.place:
        return None
    raise one_device("mat", matrix.place, vector.place, f"wrapper_{prefix}_addmv_")


def index_fill(call: Meeting) -> Place:
    """The index with self; the value is read with item() (native/TensorAdvancedIndexing.cpp; seen)."""
    source = call.first
    index = call.operand("index")
    if index is not None and index.place is not source:
        raise two_devices(*_accelerator_first(source, index.place))
    return source


_SWAP = " However, CPU Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms."


def addcmul(call: Meeting) -> Place | None:
    """One 0-dim host tensor, as tensor2 (native/PointwiseOps.cpp, cuda/PointwiseOpsKernel.cu; seen)."""
    scalars = [o for o in call.operands if o.place.index is None and o.tensor.dim() == 0 and not o.output]
    if len(scalars) > 1:
        raise too_many_scalars()
    for operand in scalars:
        if operand.name in ("self", "tensor1"):
            raise RuntimeError(
                f"CPU Scalar support for {operand.name} argument is not supported when calling addcmul on CUDA tensors."
                + _SWAP * (operand.name == "tensor1")
            )
    return None


def lerp(call: Meeting) -> Place | None:
    """A 0-dim host tensor as weight passes, as self or end it trips an assertion of the kernel (native/cuda/Loops.cuh; seen)."""
    for number, operand in enumerate((o for o in call.operands if not o.output), start=1):
        if operand.place.index is None and operand.tensor.dim() == 0 and operand.name in ("self", "end"):
            if not any(o.place.index is not None for o in call.operands if o.tensor.dim() > 0):
                break
            raise not_on_device(number, operand.place)
    return None


def smooth_l1_loss(call: Meeting) -> Place | None:
    """Its iterator lets a 0-dim host tensor pass, of which the kernel is not told (native/cuda/Loops.cuh; seen)."""
    for number, operand in enumerate((o for o in call.operands if not o.output), start=1):
        if operand.place.index is None and operand.tensor.dim() == 0:
            raise not_on_device(number, operand.place)
    return None


def mse_loss(call: Meeting) -> Place | None:
    """Two 0-dim tensors are named in their order (native/BinaryOps.cpp; seen)."""
    first, other = call.operands[0], call.operands[1]
    if first.place is not other.place and first.tensor.dim() == other.tensor.dim() == 0:
        raise two_devices(first.place, other.place)
    return None


def where(call: Meeting) -> Place:
    """Each of condition, self and other is moved when it is 0-dim (native/TensorCompare.cpp `where_self_out`; seen)."""
    inputs = [o for o in call.operands if not o.output]
    common = next((o.place for o in call.operands if o.output), None)
    for operand in sorted(inputs, key=lambda o: o.tensor.dim() == 0):  # a 0-dim one decides only when all are
        if common is None or common.index is None:
            common = operand.place if operand.place.index is not None else common
    assert common is not None
    for operand in call.operands:
        if operand.place is not common and (operand.output or operand.tensor.dim() > 0):
            raise two_devices(common, operand.place)
    return common


def sparse_sum(call: Meeting) -> Place | None:
    """Sparse additions compare device types (native/sparse/cuda/SparseCUDATensorMath.cu; seen)."""
    first, other = call.operand("self"), call.operand("other")
    if first is None or other is None or first.tensor.layout is not torch.sparse_coo or first.place.index is None:
        return None
    if other.place.type != first.place.type:
        name = call.name.partition(".")[0].rstrip("_")
        raise RuntimeError(
            f"{name}: expected 'other' to be {first.place.type.upper()}, but got {other.place.type.upper()}"
        )
    return None


def foreach(call: Meeting) -> Decompose:
    """Lists that are not on one device take the slow path: an op for each position (native/ForeachUtils.h)."""
    packet = call.name.partition(".")[0]
    for operand in call.operands:
        if operand.index is None:
            _foreach_scalar(packet, operand, call.operands[0])
    return DECOMPOSE


def _foreach_scalar(packet: str, scalar: Operand, first: Operand) -> None:
    if scalar.name == "scalars" or packet.removesuffix("_") in ("_foreach_addcdiv", "_foreach_addcmul"):
        if scalar.place.index is not None:
            raise RuntimeError(f"Expected scalars to be on CPU, got {scalar.place.name} instead.")
    elif scalar.place is not first.place and scalar.place.index is not None:
        raise RuntimeError(f"scalar tensor expected to be on {first.place.name} but is on {scalar.place.name}")


def convolution(call: Meeting) -> Place | None:
    """Types are compared for an input on a device; one on the host reaches the kernel.

    Source: native/Convolution.cpp, `check_input_same_type_as_parameters`.
    """
    image, weight = call.operand("input"), call.operand("weight")
    bias = call.operand("bias")
    if image is None or weight is None:
        return None
    prefix = call.backend.wording.check_prefix
    transposed = bool(call.arguments.get("transposed"))
    spatial = image.tensor.dim() - 2
    if image.place.index is None and prefix is not None:
        odd = weight if weight.place is not image.place else bias
        assert odd is not None
        dilated = any(d != 1 for d in call.arguments.get("dilation") or ())  # type: ignore[attr-defined]
        if spatial == 3 and not (transposed or dilated):
            missing = overload_named("slow_conv3d_forward")
            raise no_kernel(missing, prefix, (image.tensor, weight.tensor, [1] * 3, None, [1] * 3, [0] * 3), {})
        raise one_device(
            odd.name, odd.place, image.place, f"wrapper_{prefix}_{_slow_convolution(spatial, transposed, dilated)}"
        )
    for operand in (weight, bias):
        if operand is None or operand.place is image.place:
            continue
        if operand.place.index is not None and operand is bias:
            raise two_devices(image.place, bias.place)  # it is added to what the kernel returns
        if operand.place.index is not None and prefix is not None:
            kernel = "_cudnn_convolution_transpose" if transposed else "_cudnn_convolution"
            raise one_device(operand.name, operand.place, image.place, f"wrapper_{prefix}_{kernel}")
        found = type_name(image.tensor.dtype, image.place, call.backend)
        wanted = type_name(operand.tensor.dtype, operand.place, call.backend)
        raise RuntimeError(f"Input type ({found}) and {operand.name} type ({wanted}) should be the same")
    return image.place


def _slow_convolution(spatial: int, transposed: bool, dilated: bool) -> str:
    """The kernel that takes an image on the host whose weight is elsewhere; 1d ones are 2d there."""
    dims = max(spatial, 2)
    if transposed:
        return "slow_conv_transpose2d" if dims == 2 else "_slow_conv_transpose3d"
    return f"_slow_conv_dilated{dims}d" if dilated else "__slow_conv2d_forward"


def attention(call: Meeting) -> Place | None:
    """Query, key and value on one device, the mask with them (native/transformers/attention.cpp; seen)."""
    three = [call.operand(part) for part in ("query", "key", "value")]
    places = [o.place for o in three if o is not None]
    if len(places) == 3:
        check_attention(*places)
    mask = call.operand("attn_mask")
    if mask is not None and places and mask.place is not places[0] and call.backend.wording.check_prefix:
        prefix = call.backend.wording.check_prefix
        raise one_device(
            "attn_bias", mask.place, places[0], f"wrapper_{prefix}___scaled_dot_product_efficient_attention"
        )
    return None


def _accelerator_first(a: Place, b: Place) -> tuple[Place, Place]:
    """The order TensorIterator names two devices in: the host last."""
    return (a, b) if a.index is not None else (b, a)


def check_lengths(lengths: torch.Tensor, place: Place) -> None:
    """`pack_padded_sequence` reads its lengths on the host (native/PackedSequence.cpp `checkLongTensor`)."""
    if place.index is not None:
        kind = legacy_name(lengths.dtype)
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {place.name} {kind} tensor"
        )


def check_attention(query: Place, key: Place, value: Place) -> None:
    """Query, key and value are on one device, type and index (native/transformers/attention.cpp, `validate_sdpa_input`)."""
    if not query is key is value:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got "
            f"query.device: {query.name} key.device: {key.name} and value.device: {value.name} instead."
        )


def check_set(target: Place, source: Place) -> None:
    """`set_` exchanges storages on one device only (native/Resize.h, native/cuda/Resize.cpp; seen)."""
    if target is not source:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{target.name}" to a storage on different device '
            f'"{source.name}".  This is no longer allowed; the devices must match.'
        )


_ANY = (
    "copy copy_ _copy_from _copy_from_and_resize _to_copy slice_scatter select_scatter diagonal_scatter as_strided_scatter "
    "expand_as view_as reshape_as resize_as_ resize_as_sparse_ is_same_size broadcast_tensors fill_ fill full linspace "
    "logspace arange _local_scalar_dense item is_pinned _has_compatible_shallow_copy_type"
)

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_ANY.split(), first_decides),
    **dict.fromkeys(("index", "_unsafe_index"), index),
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"), index_put),
    **dict.fromkeys(("masked_fill", "masked_fill_"), masked_fill),
    "where": where,
    "mv": mv,
    "segment_reduce": segment_reduce,
    "block_diag": block_diag,
    "cholesky_solve": cholesky_solve,
    **dict.fromkeys(("add", "add_"), sparse_sum),
    **dict.fromkeys(("index_fill", "index_fill_"), index_fill),
    **dict.fromkeys(("addcmul", "addcmul_"), addcmul),
    **dict.fromkeys(("lerp", "lerp_"), lerp),
    "smooth_l1_loss": smooth_l1_loss,
    "mse_loss": mse_loss,
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), convolution),
    **dict.fromkeys(
        (
            "scaled_dot_product_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_attention_math",
            "_fused_sdp_choice",
        ),
        attention,
    ),
}
