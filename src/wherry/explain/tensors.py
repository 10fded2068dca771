"""What a post-mortem may know of a tensor or a generator: device, shape, dtype, identity, who made it. Never a value.

Nothing of the user's runs: subclasses are read below `__torch_function__`, and those that unwrap themselves are only
named. In a rehearsal the device is the one the storage's record says, also after the rehearsal has ended.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from wherry import tree
from wherry.callsite import Callsite, site_of
from wherry.storage import ATTRIBUTE, OPAQUE_ATTRIBUTE


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a tensor, as text and numbers.

    Attributes:
        device: "cuda:0", "cpu"; None where it cannot be had.
        shape: Its sizes, or None.
        dtype: "float32", or None.
        dim: How many dimensions; 0-dim tensors of the host may meet any device.
        storage: Equal for tensors over the same bytes; None without a storage.
        is_parameter: Whether it is an `nn.Parameter`.
        has_history: Whether autograd computed it.
        site: Which line made it, where a rehearsal wrote that down.
        code, instruction: The same as code and offset, to find the very expression.
        node: That expression, where the source alone told of it.
    """

    device: str | None
    shape: tuple[int, ...] | None
    dtype: str | None
    dim: int
    storage: int | None
    is_parameter: bool
    has_history: bool
    site: Callsite | None
    code: Any = None
    instruction: int = -1
    node: Any = None


def is_generator(obj: object) -> bool:
    """Whether an object is a `torch.Generator`, real or virtual."""
    if type(obj) is tree.Described:
        return obj.role == "generator"
    return any(cls.__name__ == "Generator" and cls.__module__ in ("torch", "torch._C") for cls in tree.mro(obj))


def is_operand(obj: object) -> bool:
    """Whether an object is what a device error can be about: a tensor or a generator."""
    return tree.is_tensor(obj) or is_generator(obj)


def facts_of(obj: Any) -> Facts:
    """What is known of a tensor or a generator."""
    if type(obj) is tree.Described:
        made = obj.made
        return Facts(
            obj.device, None, obj.dtype, obj.dim, id(obj if obj.storage is None else obj.storage), obj.is_parameter,
            obj.has_history, None if made is None else made.site, None if made is None else made.code, -1,
            None if made is None else made.node,
        )  # fmt: skip
    if is_generator(obj):
        return _generator(obj)
    import torch

    from wherry.dispatch import below, storage_below

    if _unwraps_itself(obj, torch.Tensor):
        return Facts(None, None, None, 1, None, False, False, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        device = str(below(obj, "device"))
        shape = tuple(int(n) for n in below(obj, "shape"))
        dtype = str(below(obj, "dtype")).removeprefix("torch.")
        history = below(obj, "grad_fn") is not None
        record, key = None, None
        try:
            storage, key = storage_below(obj)
            record = storage.__dict__.get(ATTRIBUTE)
        except (NotImplementedError, RuntimeError):  # sparse, functorch
            own = tree.instance_dict(obj).get(OPAQUE_ATTRIBUTE)
            device = own.name if own is not None else device
    site, code, instruction = None, None, -1
    if record is not None:
        place, code, instruction = record[:3]
        device = place.name
        site = site_of(code, instruction)
    return Facts(
        device, shape, dtype, len(shape), key, torch.nn.Parameter in tree.mro(obj), history, site, code, instruction
    )


def _unwraps_itself(obj: object, tensor: Any) -> bool:
    return tree.class_attribute(obj, "__torch_dispatch__") is not vars(tensor)["__torch_dispatch__"]


def _generator(obj: Any) -> Facts:
    place = tree.instance_dict(obj).get("_place")
    device: str | None = None
    if place is not None:
        device = place.name
    elif type(obj).__module__ in ("torch", "torch._C"):
        device = str(obj.device)
    return Facts(device, None, None, 1, None, False, False, None)


def gradient(tensor: Any) -> Any:
    """`tensor.grad` of a leaf, or None."""
    import torch

    from wherry.dispatch import below

    if _unwraps_itself(tensor, torch.Tensor):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return below(tensor, "grad") if below(tensor, "is_leaf") else None
