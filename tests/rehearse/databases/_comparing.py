"""Samples of PyTorch's own databases, made on a rehearsed device, with copies on the plain CPU, and how results compare.

The reference runs on plain CPU copies of a device's arguments, which share storages where the arguments do. Results
agree bit for bit and reside on the device. Where the CPU's has a dtype that the device lacks, the device refuses.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from wherry.rehearse import Rehearsal, rehearse

DEVICES = ("cuda", "mps", "xpu")  # rocm speaks as cuda does, down to the device type


class Listening(TorchDispatchMode):
    """A dispatch mode that does nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def listened_to(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs while a dispatch mode listens."""

    @functools.wraps(function)
    def listened(*args: Any, **kwargs: Any) -> Any:
        with Listening():
            return function(*args, **kwargs)

    return listened


@dataclass(frozen=True)
class Sample:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on_the_cpu(self, storages: dict[int, torch.UntypedStorage]) -> Sample:
        """The same values in plain CPU tensors; what shares a storage here shares one there, also with other samples."""

        def plain(value: Any) -> Any:
            if isinstance(value, torch.device):
                return torch.device("cpu")
            if isinstance(value, str) and value.startswith(DEVICES):
                return "cpu"
            return plain_tensor(value) if isinstance(value, Tensor) else value

        def plain_tensor(tensor: Tensor) -> Tensor:
            if tensor.layout != torch.strided or tensor.is_nested:
                return tensor.detach().clone().requires_grad_(tensor.requires_grad)
            storage = tensor.untyped_storage()
            if storage._cdata not in storages:
                copy = torch.UntypedStorage(storage.nbytes())
                storages[storage._cdata] = copy.copy_(storage)
            out = torch.empty(0, dtype=tensor.dtype)
            out.set_(storages[storage._cdata], tensor.storage_offset(), tensor.size(), tensor.stride())
            out = out.conj() if tensor.is_conj() else out
            out = torch._neg_view(out) if tensor.is_neg() else out
            return out.requires_grad_(tensor.requires_grad)

        return Sample(*tree_map(plain, (self.args, self.kwargs)))

    def asks_for(self, device_type: str) -> bool:
        """Whether an argument names a device of that type."""
        leaves, _ = tree_flatten((self.args, self.kwargs))
        return any(isinstance(leaf, str | torch.device) and str(leaf).startswith(device_type) for leaf in leaves)

    def is_placed(self) -> bool:
        """Whether any argument says where the result belongs."""
        leaves, _ = tree_flatten((self.args, self.kwargs))
        return any(isinstance(leaf, Tensor | torch.device) for leaf in leaves) or any(map(self.asks_for, DEVICES))


OF_A_GPU = ("addbmm", "baddbmm", "bmm", "matmul", "__rmatmul__", "nn_functional_bilinear")
"""Entries for which the database says that CUDA has bfloat16 only where it sees a GPU that computes in it (SM53OrLater)."""


def lacked_by_cuda(op: Any, *, backward: bool = False) -> set[torch.dtype]:
    """The dtypes which the database says that the CPU supports for an entry and CUDA does not.

    Args:
        op: The entry.
        backward: Of its derivative, too.
    """
    lacked = op.supported_dtypes("cpu") - op.supported_dtypes("cuda")
    if backward and op.supports_autograd:
        derived = op.supported_backward_dtypes("cpu") - op.supported_backward_dtypes("cuda")
        lacked |= {d for d in derived & op.supported_dtypes("cpu") if d.is_floating_point or d.is_complex}
    return lacked - {torch.bfloat16} if op.formatted_name in OF_A_GPU else lacked


def seed(device: str = "cpu") -> None:
    """Start every generator there is anew. `torch.manual_seed` does it too, and formats the stack for absent devices."""
    torch.default_generator.manual_seed(1)
    if device != "cpu":
        getattr(torch, device.partition(":")[0]).manual_seed(1)


def outcome(function: Callable[..., Any], sample: Sample, device: str = "cpu") -> Any:
    """What a call returns, or the type of what it raises."""
    seed(device)
    try:
        return function(*sample.args, **sample.kwargs)
    except Exception as error:
        return type(error)


def tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def bits(tensor: Tensor) -> Tensor:
    """A tensor as integers, so that NaNs and signed zeros compare by their bits."""
    if tensor.is_nested:
        return torch.cat([bits(part).flatten() for part in tensor.unbind()])
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    plain = tensor.detach().resolve_conj().resolve_neg().flatten()
    return plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def same_values(got: Any, wanted: Any, *, defined: bool = True) -> bool:
    """Whether two results are equal, bit for bit where they are tensors. NaNs are equal whatever their payload."""
    got_leaves, got_tree = tree_flatten(got)
    wanted_leaves, wanted_tree = tree_flatten(wanted)
    if got_tree != wanted_tree:
        return False
    return all(same_leaf(a, b, defined=defined) for a, b in zip(got_leaves, wanted_leaves, strict=True))


def same_leaf(got: Any, wanted: Any, *, defined: bool) -> bool:
    if not isinstance(got, Tensor):
        return type(got) is type(wanted) and (got == wanted or (is_nan(got) and is_nan(wanted)))
    if (got.layout, got.dtype, got.is_nested) != (wanted.layout, wanted.dtype, wanted.is_nested):
        return False
    if not got.is_nested and got.shape != wanted.shape:
        return False
    if not defined:
        return got.stride() == wanted.stride()
    if torch.equal(bits(got), bits(wanted)):
        return True
    return got.layout == torch.strided and not got.is_nested and torch.equal(*map(without_nan_payload, (got, wanted)))


def is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def without_nan_payload(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    return (
        bits(torch.where(real.isnan(), torch.full_like(real, float("nan")), real))
        if real.is_floating_point()
        else bits(real)
    )


def expected(wanted: Any, sample: Sample, rehearsal: Rehearsal) -> Any:
    """What a device gives where the CPU gives `wanted`: a refusal, if there is a tensor in it that the device cannot hold."""
    lacks = {dtype for place in rehearsal.places for dtype in place.lacks}
    here = sample.is_placed() and not sample.asks_for("cpu")
    return TypeError if here and lacks.intersection(t.dtype for t in tensors(wanted)) else wanted


class Reference:
    """What a function gives on plain CPU copies of samples."""

    def __init__(self, function: Callable[..., Any], samples: list[Sample]) -> None:
        self.samples = on_the_cpu(samples)
        self.outcomes = [outcome(function, copy) for copy in on_the_cpu(samples)]

    def is_for(self, samples: list[Sample]) -> bool:
        """Whether another device's samples have these values. Some entries offer other samples for another device."""
        return same_values(*([(s.args, s.kwargs) for s in many] for many in (on_the_cpu(samples), self.samples)))


def on_the_cpu(samples: list[Sample]) -> list[Sample]:
    storages: dict[int, torch.UntypedStorage] = {}
    return [sample.on_the_cpu(storages) for sample in samples]


def disagreements(
    function: Callable[..., Any],
    samples: list[Sample],
    device: str,
    *,
    reference: Reference | None = None,
    defined: bool = True,
) -> Iterator[str]:
    """What is wrong with a function on a rehearsed device, in comparison with the CPU, in words.

    Args:
        function: Takes the arguments of a sample.
        samples: Made on the device.
        device: Its name.
        reference: What the CPU gave, where it is known already.
        defined: Whether the values mean anything; `torch.empty` returns memory as it finds it.
    """
    wanted_of = (reference or Reference(function, samples)).outcomes
    with rehearse(device, fallback=True) as rehearsal:
        wanted_of = [expected(wanted, sample, rehearsal) for wanted, sample in zip(wanted_of, samples, strict=True)]
        got_of = [outcome(function, sample, device) for sample in samples]
        elsewhere_of = [{str(t.device) for t in tensors(got)} - {rehearsal.device} for got in got_of]
    for number, (sample, wanted, got, elsewhere) in enumerate(
        zip(samples, wanted_of, got_of, elsewhere_of, strict=True)
    ):
        if isinstance(wanted, type) or isinstance(got, type):
            if got is not wanted:
                yield f"sample {number}: {got!r} instead of {wanted!r}"
            continue
        if elsewhere and not (elsewhere == {"cpu"} and (sample.asks_for("cpu") or not sample.is_placed())):
            yield f"sample {number}: on {elsewhere}"
        if not same_values(got, wanted, defined=defined):
            yield f"sample {number}: other values"


def gradients_of(function: Callable[..., Any], *, values: bool = False) -> Callable[..., Any]:
    """The function from arguments to the gradients of everything that requires one, with what it returned if `values`."""

    def gradients(*args: Any, **kwargs: Any) -> Any:
        inputs = [t for t in tensors((args, kwargs)) if t.requires_grad]
        returned = function(*args, **kwargs)
        outputs = [t for t in tensors(returned) if t.requires_grad]
        found: list[Tensor | None] = []
        if inputs and outputs:
            seeds = [torch.ones_like(t) for t in outputs]
            found = list(torch.autograd.grad(outputs, inputs, seeds, allow_unused=True))
        return (returned, found) if values else found

    return gradients
