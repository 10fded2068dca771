"""What a kernel of a device refuses and the CPU's does not, although the tensors are where they should be.

`torch.use_deterministic_algorithms(True)` makes kernels say that they have no deterministic implementation; which ones
do, and by what name, is the backend's to know (`VirtualDevice.nondeterministic`). So are the arguments that its kernels
do not take (`Kernels.limits`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from wherry import backends
from wherry.dispatch import OpOverload, signature
from wherry.rehearse.absence import exception
from wherry.rehearse.records import residence
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from torch import Tensor

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
    return _limited(func, _determined(func, kernel))


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
