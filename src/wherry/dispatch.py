"""The only door to private torch.

Every name below that PyTorch does not promise has one line: why we need it, since which torch it is there, and the test
in `tests/torch_contract/` that notices when it goes. Nothing else in wherry imports from `torch._C` or `torch._ops`;
`rehearse/impersonate/` replaces names by their dotted path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS  # every torch.library.custom_op by name; 2.6; test_library
from torch._ops import HigherOrderOperator, OpOverload  # types of `func` in every dispatch mode; 2.6; test_modes
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: F401 - it is below every mode; 2.6; test_modes
from torch.overrides import _get_current_function_mode_stack  # set_default_device is one; 2.6; test_modes
from torch.utils._python_dispatch import (
    TorchDispatchMode,  # sees each op below autograd; 2.6; test_modes
    _disable_current_modes,  # what torch itself uses to print a tensor; 2.6; test_modes
    _get_current_dispatch_mode,  # the top of this thread's stack of modes; 2.6; test_modes
    _get_current_dispatch_mode_stack,  # all of it; 2.6; test_modes
    _pop_mode,  # ... and off it; 2.6; test_modes
    _push_mode,  # onto it; 2.6; test_modes
)
from torch.utils._pytree import SUPPORTED_NODES, tree_map  # registered containers; 2.6; test_pytree

_C = torch._C


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that `torch._dynamo` neither wraps nor skips: 0.65 us an op less (2.6; test_modes).

    It can be left in another order than it was entered: generators and coroutines do that. PyTorch can take off the top
    of its stack only, so one that has finished stays below, does nothing, and goes when the ones above it have gone.
    """

    finished = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    # Not the base's: it keeps flags for torch.compile in globals of the process, which threads that enter and leave in
    # turn would leave behind switched on.
    def __enter__(self) -> DispatchMode:
        _push_mode(self)
        return self

    def __exit__(self, *error: object) -> None:
        _pop_mode(None)


def drop_finished() -> None:
    """Take finished modes off the top of this thread's stack (`_get_current_dispatch_mode`, 2.6; test_modes)."""
    while isinstance(mode := _get_current_dispatch_mode(), DispatchMode) and mode.finished:
        _pop_mode(None)


def pop_mode(kind: type[DispatchMode]) -> Any:
    """Take the innermost mode of this thread off its stack if it is the only one and of this kind, or return None.

    (`_pop_mode`, `_len_torch_dispatch_stack`, 2.6; test_modes)
    """
    if _C._len_torch_dispatch_stack() != 1 or not isinstance(_get_current_dispatch_mode(), kind):
        return None
    return _pop_mode(None)


def is_watched() -> bool:
    """Whether a mode of ours listens on this thread (`_len_torch_dispatch_stack`, 2.6; test_modes)."""
    if not _C._len_torch_dispatch_stack():
        return False
    return any(isinstance(mode, DispatchMode) and not mode.finished for mode in _get_current_dispatch_mode_stack())


def push_mode(mode: DispatchMode) -> None:
    """Put a mode back (2.6; test_modes)."""
    _push_mode(mode)


@dataclass(frozen=True, slots=True)
class Signature:
    """What the schema of an overload says that a rehearsal needs. Looked up once per overload.

    Attributes:
        name: "aten::add.Tensor", or "aten::relu" where the overload has no name.
        arguments: names of all arguments in order, keyword-only ones last.
        positional: how many of them are not keyword-only.
        outputs: names of the arguments that are written to (`Tensor(a!)`).
        device: the position of an argument called "device" of type Device?, or None.
        generator: whether there is a keyword argument "generator".
        fresh: whether a return value may have a storage of its own.
        random: whether it draws from a generator.
        composite: the dispatch key of the kernel that makes it of other ops below autograd, or None.
        implicit: whether it has no kernel but the one that autograd takes it apart with, so that it reaches a mode only
            when called below autograd.
    """

    name: str
    arguments: tuple[str, ...]
    positional: int
    outputs: frozenset[str]
    device: int | None
    generator: bool
    fresh: bool
    random: bool
    composite: str | None
    implicit: bool


_COMPOSITE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def _has_kernel(name: str, key: str) -> bool:
    try:
        return _C._dispatch_has_kernel_for_dispatch_key(name, key)
    except RuntimeError:  # not the dispatcher's: prim::layout and its kin
        return False


def registered(operator: str, keys: Iterable[str]) -> tuple[str, ...]:
    """Those of some dispatch keys for which an operator ("torchvision::nms") has a kernel in this process.

    Nobody asks the dispatcher for all of them, since a build answers for the backends that it was made for
    (`_dispatch_has_kernel_for_dispatch_key`, 2.6; test_schemas).
    """
    return tuple(key for key in keys if _has_kernel(operator, key))


@cache
def signature(overload: OpOverload) -> Signature:
    """The `Signature` of an overload.

    Source: torch/_C/__init__.pyi `FunctionSchema`, `Argument.alias_info` (2.6; test_schemas).
    """
    schema = overload._schema
    arguments = tuple(schema.arguments)
    device = None
    for position, argument in enumerate(arguments):
        if argument.name == "device" and "Device" in str(argument.type):
            device = position
    name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    return Signature(
        name=name,
        arguments=tuple(a.name for a in arguments),
        positional=sum(not a.kwarg_only for a in arguments),
        outputs=frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write),
        device=device,
        generator=any(a.name == "generator" for a in arguments),
        fresh=any(r.alias_info is None for r in schema.returns),
        random=torch.Tag.nondeterministic_seeded in overload.tags,
        composite=next((key for key in _COMPOSITE if _has_kernel(name, key)), None),
        implicit=_has_kernel(name, "CompositeImplicitAutograd") and not _has_kernel(name, "CPU"),
    )


def kernel_key(overload: OpOverload, device_type: str) -> str | None:
    """The dispatch key whose kernel runs a library's op for a device, on CPU tensors; None to leave it to the dispatcher.

    A kernel written in Python for the device itself is a program and may run; one written in C++ would be handed CPU
    memory, so the CPU's own is preferred (torch._library.custom_ops.OPDEFS, 2.6; test_library).
    """
    name = signature(overload).name
    defined = OPDEFS.get(overload._schema.name)
    own = {"cuda": "CUDA", "xpu": "XPU", "mps": "MPS"}.get(device_type)
    keys = ["CPU", "CompositeExplicitAutograd"]
    if own is not None and defined is not None and device_type in defined._backend_fns:
        keys.insert(0, own)
    elif own is not None:
        keys.append(own)
    return next((key for key in keys if _has_kernel(name, key)), None)


def higher_order_kernel(op: HigherOrderOperator) -> Callable[..., Any] | None:
    """What flex_attention, cond and their kin do eagerly, on any device (`py_kernels`, 2.6; test_modes)."""
    return op.py_kernels.get(_C.DispatchKey.CompositeExplicitAutograd)


def run_kernel(overload: OpOverload, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the kernel of one dispatch key (2.6; test_modes)."""
    with _lazy_bits_seen():
        return overload._op_dk(getattr(_C.DispatchKey, key), *args, **kwargs)


_LAZY_BITS = (
    _C.DispatchKeySet(_C.DispatchKey.Conjugate)
    | _C.DispatchKeySet(_C.DispatchKey.Negative)
    | _C.DispatchKeySet(_C.DispatchKey.ZeroTensor)
)


def _lazy_bits_seen() -> Any:
    """A context in which ops look at the conjugate and the negative bit of their operands.

    Below a dispatch mode PyTorch leaves these keys out, since they stand above it. A kernel that conjugates and goes on
    with other ops then goes on with values that nobody conjugated: `torch.pinverse` of complex numbers is wrong under
    any dispatch mode (`_ForceDispatchKeyGuard`, 2.6; test_modes).
    """
    include = _C._dispatch_tls_local_include_set()
    return _C._ForceDispatchKeyGuard(include, _C._dispatch_tls_local_exclude_set() - _LAZY_BITS)


@cache
def runner(overload: OpOverload) -> Callable[..., Any]:
    """What runs an op below the dispatch modes: on any arguments, what a program without a mode would get.

    Only a kernel that is made of other ops can conjugate between them, which those of linear algebra are, by whatever
    key they are registered.
    """
    sig = signature(overload)
    op = _binding(sig.name) or overload._op
    made_of_others = "linalg" in sig.name or not (_has_kernel(sig.name, "CPU") or "_foreach_" in sig.name)
    if not (sig.fresh and made_of_others):
        return op

    def run(*args: Any, **kwargs: Any) -> Any:
        if any(map(_may_be_complex, (*args, *kwargs.values()))):
            with _lazy_bits_seen():
                return op(*args, **kwargs)
        return op(*args, **kwargs)

    return run


BOUND = frozenset(
    """
    _log_softmax _log_softmax_backward_data _softmax _softmax_backward_data abs add.Tensor add_.Tensor addcdiv
    addcdiv_ addcmul addcmul_ addmm addmm_ amax amin argmax as_strided avg_pool2d baddbmm bitwise_and.Tensor
    bitwise_not bmm cat clamp clamp_min clone convolution cos cumsum detach div.Tensor div_.Tensor embedding
    eq.Scalar eq.Tensor erf exp exp_ expand fill_.Scalar floor gather ge.Scalar ge.Tensor gelu gt.Scalar gt.Tensor
    index_add index_add_ index_select le.Scalar le.Tensor leaky_relu lerp.Scalar lerp_.Scalar log log1p logical_and
    logical_not logical_or logsumexp lt.Scalar lt.Tensor masked_fill.Scalar masked_fill_.Scalar max maximum mean
    mean.dim min minimum mm mul.Tensor mul_.Tensor ne.Scalar ne.Tensor neg permute pow.Tensor_Scalar reciprocal relu
    relu_ repeat rsqrt scatter_add select.int sigmoid silu sin softplus split.Tensor split_with_sizes sqrt sqrt_
    squeeze squeeze.dim stack sub.Tensor sub_.Tensor sum sum.dim_IntList t tanh transpose.int tril triu unbind.int
    unsqueeze view where.self zero_ _foreach_add.List _foreach_add.Scalar _foreach_div.List _foreach_mul.Scalar
    _foreach_neg _foreach_norm.Scalar _foreach_sqrt
    """.split()
)
"""Overloads that run through torch's own Python binding: 0.5 us less than through the overload (2.6; test_bindings).

A binding picks its overload from its arguments; these pick the one they are listed for, given the arguments that a mode is
handed. Left out are those that return something else than their overload: themselves instead of nothing, a named tuple.
"""


def _binding(name: str) -> Callable[..., Any] | None:
    short = name.removeprefix("aten::")
    if short not in BOUND:
        return None
    owners = (_C._VariableFunctions, _C.TensorBase, _C._nn)
    return next((getattr(owner, packet) for owner in owners if hasattr(owner, packet := short.partition(".")[0])), None)


def _may_be_complex(argument: object) -> bool:
    if type(argument) is torch.Tensor:
        return argument.is_complex()
    if isinstance(argument, list | tuple):
        return any(map(_may_be_complex, argument))
    return isinstance(argument, torch.Tensor)  # of a subclass, which is not asked


def functorch_level_below(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a functorch wrapper (vmap, grad, functionalize) wraps, or None for anything else (2.6; test_functorch)."""
    functorch = _C._functorch
    if functorch.is_functorch_wrapped_tensor(tensor):
        return functorch.get_unwrapped(tensor)
    return None


def parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that hold the values of one without a storage of its own: sparse, nested, functorch wrappers.

    Call it where no dispatch mode is listening: reading the parts of a sparse tensor is itself an op.
    """
    inner = functorch_level_below(tensor)
    if inner is not None:
        yield inner
        return
    layout = tensor.layout
    if layout is torch.sparse_coo:
        yield tensor._indices()  # not .indices(), which refuses an uncoalesced tensor
        yield tensor._values()
    elif layout in (torch.sparse_csr, torch.sparse_bsr):
        yield tensor.crow_indices()
        yield tensor.col_indices()
        yield tensor.values()
    elif layout in (torch.sparse_csc, torch.sparse_bsc):
        yield tensor.ccol_indices()
        yield tensor.row_indices()
        yield tensor.values()
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is not None:  # a wrapper subclass: NestedTensor, DTensor, ... (torch.utils._python_dispatch, 2.6)
        for name in tensor.__tensor_flatten__()[0]:
            yield getattr(tensor, name)


def is_transforming() -> bool:
    """Whether functorch (grad, vmap, jvp) or forward-mode autograd is at work above the op that is running.

    Then a tensor below does not tell whether a derivative is wanted. functorch takes its level off its stack before it
    calls what is below, so the frames are asked; on rare ops only (torch._functorch, 2.6; test_functorch).
    """
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torch._functorch"):
            return True
        frame = frame.f_back
    return False


def is_batched_gradient(tensor: torch.Tensor) -> bool:
    """Whether this is one of the gradients that `is_grads_batched` computes at once (2.6; test_functorch)."""
    return _C._functorch.is_legacy_batchedtensor(tensor)


def autograd_node() -> str | None:
    """The name of the node whose backward this thread is running (`_current_autograd_node`, 2.6; test_modes)."""
    node = _C._current_autograd_node()
    return None if node is None else node.name()


def overload_named(name: str) -> OpOverload:
    """An aten overload by its name: "softmax.int", "exp"."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def below_autocast() -> Any:
    """A context in which the CPU's autocast does nothing (`_ExcludeDispatchKeyGuard`, 2.6; test_modes)."""
    return _C._ExcludeDispatchKeyGuard(_C.DispatchKeySet(_C.DispatchKey.AutocastCPU))


@cache
def autocast_list(device_type: str) -> frozenset[str]:
    """The aten ops that the autocast of a device type has a kernel for: {"mm", "softmax.int", ...}.

    Every build registers those of every device (`_dispatch_get_registrations_for_dispatch_key`, 2.6; test_autocast).
    """
    names = _C._dispatch_get_registrations_for_dispatch_key(f"Autocast{device_type.upper()}")
    return frozenset(name.removeprefix("aten::") for name in names if name.startswith("aten::"))


@cache
def autocast_kernel(overload: OpOverload) -> Callable[..., Any] | None:
    """The kernel that torch itself has for an op under the CPU's autocast, or None.

    To be asked before it is replaced; later answers are the first one. None as well where this torch does not give it
    away (torch.library.get_kernel, 2.9; test_autocast).
    """
    name = signature(overload).name
    if name.removeprefix("aten::") not in autocast_list("cpu") or not hasattr(torch.library, "get_kernel"):
        return None
    kernel = torch.library.get_kernel(name, "AutocastCPU")
    keys = _C.DispatchKeySet(_C.DispatchKey.AutocastCPU)
    return lambda *args, **kwargs: kernel.call_boxed(keys, *args, **kwargs)


def function_modes() -> list[Any]:
    """The function modes of this thread, innermost last (2.6; test_modes)."""
    return list(_get_current_function_mode_stack())


def without_functions() -> Any:
    """A context in which no subclass's `__torch_function__` is called (2.6; test_modes)."""
    return _C.DisableTorchFunctionSubclass()


def below(tensor: torch.Tensor, name: str) -> Any:
    """An attribute of a tensor as C++ has it, below impersonated names and subclasses (`_C.TensorBase`, 2.6; test_tensors).

    Raises:
        KeyError: C++ has none of that name.
    """
    with without_functions():
        return vars(_C.TensorBase)[name].__get__(tensor)


def storage_below(tensor: torch.Tensor) -> tuple[torch.UntypedStorage, int]:
    """The storage of a tensor, and a number that is the same for all tensors over it (`_cdata`, 2.6; test_tensors).

    Raises:
        NotImplementedError, RuntimeError: it has none.
    """
    with without_functions():
        storage = _C.TensorBase.untyped_storage(tensor)
        return storage, storage._cdata


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether a tensor's class computes in Python, as DTensor, FakeTensor and NestedTensor do (2.6; test_tensors)."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def without_lazy_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor whose conjugation or negation is still to be done, as they are (`_neg_view`, 2.6; test_tensors)."""
    if tensor.is_complex() and tensor.is_conj():  # asking only complex ones takes a tenth of the time
        tensor = tensor.conj()
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def with_lazy_bits_of(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`without_lazy_bits` backwards."""
    if other.is_neg() and not tensor.is_neg():
        tensor = torch._neg_view(tensor)
    return tensor.conj() if other.is_complex() and other.is_conj() and not tensor.is_conj() else tensor


def takes_data(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether `tensor.data = other` works, so that `Module.to` keeps a parameter's object (2.6; test_tensors)."""
    if torch.__future__.get_swap_module_params_on_conversion() or is_wrapper(tensor):
        return True  # then it exchanges what is inside
    if torch.__future__.get_overwrite_module_params_on_conversion():
        return False
    return torch._has_compatible_shallow_copy_type(tensor, other)


def copy_each(into: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    """Copy many tensors into as many others by one op (`_foreach_copy_`, 2.6; test_tensors)."""
    with torch.no_grad():
        torch._foreach_copy_(into, values)


def pytree_nodes() -> dict[type, Any]:
    """The classes that torch's pytree takes apart, each with its `flatten_fn` and `unflatten_fn` (2.6; test_pytree)."""
    return SUPPORTED_NODES


def mapped(function: Callable[[Any], Any], obj: Any) -> Any:
    """A nested object with a function applied to each leaf, in a way that torch.compile follows (2.6; test_pytree)."""
    return tree_map(function, obj)


def without_modes() -> Any:
    """A context in which no dispatch mode listens (2.6; test_modes)."""
    return _disable_current_modes()


with _disable_current_modes():
    pass  # its first use imports modules of torch, which must not happen in the middle of a rehearsal


def _on_meta(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an op on meta copies of its tensors: shapes only, nothing is computed or allocated."""

    def to_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        if isinstance(value, list | tuple):
            return type(value)(to_meta(item) for item in value)
        if isinstance(value, torch.device):
            return torch.device("meta")
        return value

    meta_kwargs = {name: to_meta(value) for name, value in kwargs.items()}
    if any(a.name == "device" for a in overload._schema.arguments):
        meta_kwargs["device"] = torch.device("meta")
        meta_kwargs.pop("pin_memory", None)
    return overload(*(to_meta(a) for a in args), **meta_kwargs)


def shape_of_result(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """How many bytes the tensors that an op returns would take; None where the meta device cannot tell."""
    try:
        out = _on_meta(overload, args, kwargs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None  # no meta kernel, or a data-dependent shape
    leaves = out if isinstance(out, list | tuple) else (out,)
    return sum(leaf.untyped_storage().nbytes() for leaf in leaves if isinstance(leaf, torch.Tensor))


# torch.compile. `torch._dynamo` takes a second to import, so only those who compile do.


def why_no_dynamo() -> str | None:
    """Why this torch cannot trace programs in this Python, or None if it can (`check_if_dynamo_supported`, 2.6; test_compile)."""
    try:
        from torch._dynamo.eval_frame import check_if_dynamo_supported

        check_if_dynamo_supported()
    except Exception as err:  # noqa: BLE001 - in a Python too new for it the import fails in any way; the reason is shown
        return str(err).strip().split("\n", 1)[0].rstrip(".") or type(err).__name__
    return None


def graph_compiler(
    backend: str | Callable[..., Any] | None,
    *,
    mode: str | None,
    options: dict[str, Any] | None,
    dynamic: bool | None,
    name: str | None,
    ahead: bool,
) -> tuple[Callable[..., Any], bool]:
    """What `torch.compile(backend=..., mode=..., options=...)` hands each graph to, and whether with mode and options.

    (`lookup_backend`, `_TorchCompileInductorWrapper`, 2.6; `get_default_backend` and `_TorchCompileAOTInductorWrapper`, not
    in 2.6, in 2.13; test_compile)

    `ahead` asks for AOTInductor, as the option "use_aoti" does; the others are parameters of torch.compile.
    """
    from torch._dynamo.backends import registry

    if backend is None:
        backend = registry.get_default_backend() if hasattr(registry, "get_default_backend") else "inductor"
    if backend != "inductor":
        return registry.lookup_backend(backend), True
    wrapper = torch._TorchCompileAOTInductorWrapper if ahead else torch._TorchCompileInductorWrapper
    return (wrapper(mode, options, dynamic) if name is None else wrapper(mode, options, dynamic, name)), False


def backward_beside_forward() -> AbstractContextManager[Any]:
    """A context in which the graph of a backward is compiled with that of its forward, not when it is first needed.

    (`torch._functorch.config.force_non_lazy_backward_lowering`, not in 2.6, where nothing changes; in 2.13; test_compile)
    """
    from torch._functorch import config

    if hasattr(config, "force_non_lazy_backward_lowering"):
        return config.patch(force_non_lazy_backward_lowering=True)
    return nullcontext()


def optimized_module() -> type[torch.nn.Module]:
    """The class of a module that was compiled (torch._dynamo.eval_frame.OptimizedModule, 2.6; test_compile)."""
    from torch._dynamo import OptimizedModule

    return OptimizedModule


@dataclass(frozen=True, slots=True)
class DynamoErrors:
    """What torch.compile raises when it cannot go on (torch._dynamo.exc, 2.6; test_compile).

    Attributes:
        any: every error of its own.
        asked_for: those that say no to what the caller insisted on: a graph break under `fullgraph`, a size marked dynamic.
        of_the_program: an operator that fails on the shapes it was handed, which it would without being compiled, too.
        control_flow: what a backend may raise to have the graph traced anew, or left alone.
    """

    any: type[Exception]
    asked_for: tuple[type[Exception], ...]
    of_the_program: type[Exception]
    control_flow: tuple[type[Exception], ...]


@cache
def dynamo_errors() -> DynamoErrors:
    """The classes, once torch.compile is imported."""
    from torch._dynamo import exc

    return DynamoErrors(
        any=exc.TorchDynamoException,
        asked_for=(exc.Unsupported, exc.UserError),
        of_the_program=exc.TorchRuntimeError,
        control_flow=(exc.RestartAnalysis, exc.SkipFrame),
    )
