"""What a kernel of a device refuses and the CPU's does not, although the tensors are where they should be.

`torch.use_deterministic_algorithms(True)` makes kernels say that they have no deterministic implementation; which ones
do, and by what name, is the backend's to know (`VirtualDevice.nondeterministic`). So are the arguments and the dtypes that
its kernels do not take (`Kernels.limits`, `Kernels.unsupported`).

What surprises: a kernel looks at dtypes last. What the CPU's kernel says of shapes is what the device's says, too, so it
runs before its dtype is refused, on copies of what it would write to.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from wherry import backends
from wherry.backends._backend import Unsupported
from wherry.dispatch import OpOverload, Signature, signature
from wherry.rehearse.absence import exception
from wherry.rehearse.records import residence
from wherry.rehearse.surface import thread

_MAX = 2  # the number of EmbeddingBag's mode "max"

_ONLY_IF: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "_embedding_bag_dense_backward": lambda arguments: arguments["mode"] == _MAX,
    "_embedding_bag_backward": lambda arguments: arguments["mode"] == _MAX,
    "bincount": lambda arguments: arguments.get("weights") is not None,
    "histc": lambda arguments: arguments["self"].is_floating_point(),
    "put": lambda arguments: bool(arguments.get("accumulate")),
    "put_": lambda arguments: bool(arguments.get("accumulate")),  # without, the CPU's kernel says the same
    "scatter_reduce": lambda arguments: arguments["reduce"] == "prod",
    "scatter_reduce_": lambda arguments: arguments["reduce"] == "prod",
}
"""Ops that are nondeterministic for some arguments only (aten/src/ATen/native/cuda)."""


def refusing(func: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """What runs an overload, after what a device's kernel would refuse."""
    return _limited(func, _determined(func, _supported(func, kernel)))


def _limited(func: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    sig = signature(func)
    packet = sig.name.removeprefix("aten::").partition(".")[0]
    known = {
        b: b.kernels.limits[packet] for b in backends.all() if b.kernels is not None and packet in b.kernels.limits
    }
    limits = {backend: limit for backend, limit in known.items() if limit.span.holds(torch.__version__)}
    if not limits:
        return kernel

    def run(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        limit = None if mode is None else limits.get(mode.session.backend)
        if limit is not None and residence(args[0]).index is not None:
            refused = limit.refuses(dict(zip(sig.arguments, args, strict=False)) | kwargs)
            if refused is not None:
                raise exception(*refused)
        return kernel(*args, **kwargs)

    return run


def _supported(func: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Refuses the dtypes that some device's kernel does not have. On the hot path of products: one look at a set."""
    sig = signature(func)
    name = sig.name.removeprefix("aten::")
    known = {b: found for b in backends.all() if b.kernels is not None and (found := b.kernels.unsupported_by(name))}
    if not known:
        return kernel
    watched = {getattr(torch, dtype) for found in known.values() for each in found for dtype in each.dtypes}

    def run(*args: Any, **kwargs: Any) -> Any:
        if args[0].dtype in watched:
            mode = thread.mode
            found = None if mode is None else known.get(mode.session.backend)
            if found is not None:
                _check_dtype(sig, kernel, found, args, kwargs)
        return kernel(*args, **kwargs)

    return run


def _check_dtype(
    sig: Signature,
    kernel: Callable[..., Any],
    found: tuple[Unsupported, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    arguments = dict(zip(sig.arguments, args, strict=False)) | kwargs
    read = [v for k, v in arguments.items() if isinstance(v, Tensor) and not (k in kwargs and k in sig.outputs)]
    if any(t.layout != torch.strided for t in read) or all(residence(t).index is None for t in read):
        return
    dtype = str(args[0].dtype).removeprefix("torch.")
    empty = any(t.numel() == 0 for t in read)
    for each in found:
        if dtype not in each.dtypes or (empty and not each.empty):
            continue
        if each.when is None or each.when(arguments):
            _check_shapes(sig, kernel, args, kwargs)
            raise exception(*each.words(dtype))


def _check_shapes(sig: Signature, kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what a kernel objects to besides a dtype, without a trace of its run."""

    def spared(name: str, value: Any) -> Any:
        return value.clone() if name in sig.outputs and isinstance(value, Tensor) else value

    with suppress(NotImplementedError):
        kernel(
            *(spared(name, value) for name, value in zip(sig.arguments, args, strict=False)),
            **{name: spared(name, value) for name, value in kwargs.items()},
        )


def _determined(func: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    sig = signature(func)
    names = {n for n in (sig.name, sig.name.partition(".")[0]) if n.startswith("aten::")}
    names = {n.removeprefix("aten::") for n in names}
    if not any(names & b.virtual.nondeterministic.keys() for b in backends.all() if b.virtual is not None):
        return kernel
    only_if = _ONLY_IF.get(sig.name.removeprefix("aten::").partition(".")[0])

    def run(*args: Any, **kwargs: Any) -> Any:
        if torch.are_deterministic_algorithms_enabled():
            arguments = dict(zip(sig.arguments, args, strict=False)) | kwargs
            first: Tensor = args[0]
            mode = thread.mode
            if mode is not None and residence(first).index is not None and (only_if is None or only_if(arguments)):
                virtual = mode.session.backend.virtual
                known = virtual.nondeterministic if virtual is not None else {}
                for name in names & known.keys():
                    _alert(known[name])
        return kernel(*args, **kwargs)

    return run


def _alert(name: str) -> None:
    """Source: aten/src/ATen/Context.cpp, `alertNotDeterministic`."""
    text = f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True"
    if torch.is_deterministic_algorithms_warn_only_enabled():
        warnings.warn(
            f"{text}, warn_only=True)'. You can file an issue at https://github.com/pytorch/pytorch/issues to help us "
            "prioritize adding deterministic support for this operation.",
            stacklevel=4,
        )
        return
    raise RuntimeError(
        f"{text})'. You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if "
        "that's acceptable for your application. You can also file an issue at https://github.com/pytorch/pytorch/issues to "
        "help us prioritize adding deterministic support for this operation."
    )
