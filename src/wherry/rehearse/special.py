"""Ops that the hot path of `mode` cannot treat alike: they name a device, draw, move, or exchange storages.

`of(overload)` answers which of the functions below an overload goes through, or None for the many that need none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from wherry import backends
from wherry.dispatch import (
    OpOverload,
    higher_order_kernel,
    is_transforming,
    kernel_key,
    overload_named,
    run_kernel,
    signature,
)
from wherry.errors import CannotRehearse
from wherry.ops import catalog
from wherry.rehearse import dtypes, exceptions, fallback, laws
from wherry.rehearse.absence import is_foreign, refuse_to_start
from wherry.rehearse.accounting import reserve
from wherry.rehearse.randomness import drawing_at
from wherry.rehearse.records import (
    CPU,
    FLOATING,
    HOST,
    PINNED,
    UNMARKED,
    block_nbytes,
    float_beside,
    mark,
    mark_all,
    move_all,
    operands_of,
    residence,
    settle_all,
    write,
)
from wherry.rehearse.running import running_call
from wherry.rehearse.wording import one_device, without_kernel
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.mode import Mode

Special = Callable[["Mode", OpOverload, tuple[Any, ...], dict[str, Any]], Any]


def of(func: OpOverload) -> Special | None:
    """The function an overload goes through, or None for the common path."""
    return fallback.of(func, _with_a_kernel(func))


def _with_a_kernel(func: OpOverload) -> Special | None:
    sig = signature(func)
    packet = sig.name.removeprefix("aten::").split(".", 1)[0]
    if packet in _BY_NAME:
        return _BY_NAME[packet]
    if sig.name in _SCALARS_ON_HOST:
        return scalars_on_host
    if sig.name in _WIDER_PRODUCTS:
        return wider_product
    if sig.name == "aten::masked_fill.Tensor":
        return asks_who_listens
    if packet in _BEYOND_CPU:
        return beyond_cpu
    if func.namespace not in _TORCHS_OWN:
        return library_op
    if sig.implicit:
        return implicit
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

    if device is not None and device.type != "cpu" and is_foreign(mode.session, device.type):
        refuse_to_start(device.type)
        try:
            return func._op(*args, **kwargs)  # raises as this torch does for a device it was built without
        except NotImplementedError as error:
            raise without_kernel(mode.session.backend, error) from None
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
    if mode.session.narrow:
        dtype = dtypes.asked(args, kwargs)
        dtypes.check_new(mode.session, sig.name, dtype, place)
        if sig.name == "aten::_to_copy" and origin is not None and dtype is not None:
            dtypes.check_cast(mode.session, args[0], origin, dtype)
    if place.index is not None:
        reserve(place, func, args, kwargs)
    out = drawing_at(place, sig, func._op, args, kwargs) if sig.random else func._op(*args, **kwargs)
    if place is FLOATING:
        call = running_call()
        if call.name == "_pad_packed_sequence" and kwargs.get("dtype") is torch.int64:
            mark_all(out, HOST)  # its lengths are made like batch_sizes, which is on the host (PackedSequence.cpp)
        else:
            float_beside(out, call.operand)
        return out
    mode.ambient = place
    mark_all(out, place)
    if place is PINNED:
        move_all(out, PINNED)
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
    if device is None:  # options without a device mean the host; those of a tensor always name one
        return HOST if origin is None else origin
    if device.type != "cpu":
        return mode.session.resolve(device)
    if explicit:
        return HOST
    if origin is HOST and name == "aten::_to_copy":
        return FLOATING  # `x.to(other.options())` in C++: other may be on a device
    if origin is not None:
        return origin  # `options()` of a tensor that really is on the CPU: the helper follows it
    return HOST if running_call().constructs_tensor else FLOATING


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
    if mode.session.narrow and isinstance(dst, torch.Tensor) and isinstance(src, torch.Tensor):
        dtypes.check_cast(mode.session, src, residence(src), dst.dtype)
    out = func._op(*args, **kwargs)
    if isinstance(dst, torch.Tensor) and isinstance(src, torch.Tensor):
        there, here = residence(src), residence(dst)
        if there is not here:
            mode.session.moved(there, here, dst)
    return out


def item(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.item()`, `float(x)`, `if x:`: one value comes back to the host."""
    place = residence(args[0])
    if place.index is not None:
        mode.session.moved_bytes(place, HOST, args[0].element_size())
    return func._op(*args, **kwargs)


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
    elif record[0].index is not None and record[3] != block_nbytes(storage):
        write(storage, *record[:3])
    return out


def implicit(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that autograd would have taken apart (CompositeImplicitAutograd), called below autograd: by a library's kernel."""
    operands = mode.settle(tuple(operands_of(func, args, kwargs)))
    if len({operand.place for operand in operands}) > 1 and laws.has_kernel(mode.session.backend, func, operands):
        laws.judge(mode.session.backend, func, operands, args, kwargs)  # one kernel there, whose check speaks
    with mode:
        out = run_kernel(func, "CompositeImplicitAutograd", args, kwargs)
    if not operands or any(operand.place is not FLOATING for operand in operands):  # else it goes on floating
        settle_all(out, next((o.place for o in operands if o.place.index is not None), HOST))
    return out


def singular_values(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_linalg_svd` and `_linalg_eigh` for somebody who wants the values only.

    Under any dispatch mode, PyTorch computes the vectors too, as it must where a gradient is wanted
    (native/BatchLinearAlgebra.cpp, `_may_require_fw_or_bw_grad`), and another LAPACK driver rounds the values otherwise.
    """
    wanted = (torch.is_grad_enabled() and args[0].requires_grad) or is_transforming()
    if not wanted and running_call().name in catalog.VALUES_ONLY:
        name = "compute_uv" if func._schema.name == "aten::_linalg_svd" else "compute_v"
        position = [argument.name for argument in func._schema.arguments].index(name)
        if position < len(args):
            args = (*args[:position], False, *args[position + 1 :])
        else:
            kwargs = {**kwargs, name: False}
    return asks_who_listens(mode, func, args, kwargs)


def asks_who_listens(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op whose backward asks whether a mode listens: note that there is one (`impersonate.unobserved.quietly`)."""
    if torch.is_grad_enabled():
        mode.session.asks_who_listens = True
    return mode.meet(func, args, kwargs)


def higher_order(mode: Mode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """flex_attention, cond: an op that takes functions. Its eager kernel is a program of ops, which we see."""
    kernel = _branch if func.name() == "cond" else higher_order_kernel(func)
    if kernel is None:
        raise CannotRehearse(func.name(), "it is a higher-order operator without an eager kernel")
    with mode:
        return kernel(*args, **kwargs)


def _branch(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
    """What the kernel of `cond` does, without its assertion that no mode is on (torch/_higher_order_ops/cond.py)."""
    return true_fn(*operands) if pred else false_fn(*operands)


def library_op(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that a library registered (torch.library.custom_op, a C++ extension).

    Its kernel is a program like any other: it allocates, asks for devices and calls ops. So it runs with the mode
    listening, and what it returns without having met an operand resides with the first one.
    """
    operands = mode.settle(tuple(operands_of(func, args, kwargs)))
    here = next((o.place for o in operands if o.place.index is not None), HOST)
    key = kernel_key(func, here.type)
    if key is None:
        return mode.common(func, args, kwargs, here)
    with mode:
        out = run_kernel(func, key, args, kwargs)
    settle_all(out, here)
    return out


def wider_product(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`mm(a, b, out_dtype=torch.float32)` of half precision, which CUDA and XPU have a kernel for and the CPU has not.

    Sums in the wider type, as they do (native/cuda/Blas.cpp, `_mm_dtype_out_cuda`, whose checks are made here).
    """
    places = {operand.place for operand in mode.settle(tuple(operands_of(func, args, kwargs)))}
    prefix = mode.session.backend.wording.check_prefix
    if len(places) != 1 or prefix is None or (here := places.pop()).index is None:
        return mode.meet(func, args, kwargs)
    sig = signature(func)
    position = sig.arguments.index("out_dtype")
    tensors, wider = args[:position], args[position]
    narrow = tensors[-1].dtype
    if tensors[-2].dtype != narrow:
        raise RuntimeError("input dtypes must be the same")
    if wider != narrow and not (wider == torch.float32 and narrow in (torch.float16, torch.bfloat16)):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
    packet = sig.name.removeprefix("aten::").partition(".")[0]
    run = overload_named(f"{packet}.out" if "out" in kwargs else packet)._op
    cast = overload_named("_to_copy")._op
    out = run(*(cast(tensor, dtype=wider) for tensor in tensors), **kwargs)
    mode.ambient = here
    mark_all(out, here)
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


def ask_library(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Whether a library of the device would take a ctc_loss: none does here, and nobody compares devices to ask."""
    if any(operand.place.index is not None for operand in operands_of(func, args, kwargs)):
        return False
    return func._op(*args, **kwargs)


def scalars_on_host(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_foreach_addcdiv.Tensor` and its kin read their scalars on the host, wherever the lists are (native/ForeachUtils.h)."""
    scalars = residence(args[3])
    if scalars.index is not None:
        raise RuntimeError(f"Expected scalars to be on CPU, got {scalars.name} instead.")
    return mode.meet(func, args, kwargs)


def beyond_cpu(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that the device has for a dtype and the CPU does not: computed in a wider one, and rounded to what it was."""
    operands = mode.settle(tuple(operands_of(func, args, kwargs)))
    virtual = mode.session.backend.virtual
    here, narrow = operands[0].place, operands[0].tensor.dtype
    packet = func._schema.name.removeprefix("aten::")
    if (
        any(operand.place is not here or operand.output for operand in operands)
        or (here.index is None and here is not FLOATING)
        or virtual is None
        or str(narrow).removeprefix("torch.") not in virtual.beyond_cpu.get(packet, ())
    ):
        return mode.meet(func, args, kwargs)
    wide = torch.float32 if narrow.is_floating_point else torch.float64

    def widened(value: Any) -> Any:
        return value.to(wide) if isinstance(value, torch.Tensor) and value.dtype is narrow else value

    out = func._op(*map(widened, args), **{name: widened(value) for name, value in kwargs.items()})
    several = isinstance(out, tuple)
    parts = tuple(part.to(narrow) if part.dtype is wide else part for part in (out if several else (out,)))
    mode.ambient = here
    mark_all(parts, here)
    return parts if several else parts[0]


def nested_from_list(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`nested_tensor` of parts: they are joined by `cat`, whose check speaks (native/nested/NestedTensorFactories.cpp)."""
    prefix = mode.session.backend.wording.check_prefix
    places = [residence(part) for part in args[0]]
    for place in places:
        if place is not places[0] and prefix is not None:
            raise one_device("tensors", place, places[0], f"wrapper_{prefix}_cat")
    return with_device(mode, func, args, kwargs)


_WIDER_PRODUCTS = frozenset(
    f"aten::{op}.dtype{out}" for op in ("mm", "bmm", "addmm", "baddbmm") for out in ("", "_out")
)

ASK_WHO_LISTENS = ("prod", "cumprod", "linalg_eig")
"""Ops that make the nodes of `impersonate.unobserved.ASK_WHO_LISTENS`, besides `masked_fill.Tensor`."""

_BEYOND_CPU = frozenset(
    packet for backend in backends.all() if backend.virtual is not None for packet in backend.virtual.beyond_cpu
)
"""Ops that some device has for more dtypes than the CPU. Labels, which are integers beside halves, stay as they are."""

_SCALARS_ON_HOST = frozenset(
    f"aten::_foreach_{op}{place}.Tensor" for op in ("addcdiv", "addcmul") for place in ("", "_")
)

_TORCHS_OWN = frozenset(
    {
        "aten",
        "prim",
        "prims",
        "c10d",
        "_c10d_functional",
        "_c10d_functional_autograd",
        "quantized",
        "sparse",
        "mkldnn",
        "mkldnn_prepacked",
        "rngprims",
        "onednn",
        "profiler",
        "inductor",
        "_quantized",
        "static_runtime",
        "symm_mem",
        "_dtensor",
        "fsdp",
    }
)
"""Namespaces whose ops have kernels in C++ that a rehearsal may run as they are."""

_BY_NAME: dict[str, Special] = {
    "copy_": copy_,
    **dict.fromkeys(ASK_WHO_LISTENS, asks_who_listens),
    "_linalg_svd": singular_values,
    "_linalg_eigh": singular_values,
    **dict.fromkeys(("_nested_tensor_from_tensor_list",), nested_from_list),
    "_local_scalar_dense": item,
    **dict.fromkeys(("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"), ask_library),
    "lift_fresh": lift_fresh,
    "lift_fresh_copy": lift_fresh,
    "resize_": resize_,
    "set_": resize_,
    "_pack_padded_sequence": batch_sizes_on_host,
}
