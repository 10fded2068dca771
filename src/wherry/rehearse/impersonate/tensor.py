"""torch.Tensor: where a tensor says it is, and how it gets elsewhere.

`Tensor.device` reads the record of the storage. `Tensor.to` and its kin decide in Python whether anything has to move,
then let PyTorch's own `to` make the copy, so that autograd, memory formats and dtypes are its business; the mode writes
the destination on the new storage. The gradient of a movement goes back to where the tensor came from: the C++ node
cannot know (to it both ends are on the CPU), so a hook on the node carries it there.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedTensorMixin

from wherry.dispatch import without_functions, without_modes
from wherry.rehearse.absence import absent, is_foreign, refuse_to_start
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.mode import Mode
from wherry.rehearse.records import (
    FLOATING,
    HOST,
    PINNED,
    haven,
    mark_all,
    move_record,
    refuse,
    residence,
    storage_of,
    write,
)
from wherry.rehearse.surface import thread
from wherry.rehearse.wording import not_convertible_to_numpy, type_name, without_kernel
from wherry.storage import Place

_Base = torch._C.TensorBase  # the C++ half of torch.Tensor: what its names are when nothing shadows them


class TensorProperty(property):
    """A property of torch.Tensor that torch._dynamo takes for one of its C++ base (torch/_dynamo/utils.py in 2.6)."""

    __objclass__ = _Base

    def __init__(self, name: str, getter: Any, setter: Any = None, deleter: Any = None, doc: str | None = None) -> None:
        super().__init__(getter, setter, deleter, doc)
        self.__name__ = name


def settled(mode: Mode, tensor: Tensor) -> Place:
    """Where a tensor is, for a program that asks: a floating one settles beside the call that made it."""
    place = residence(tensor)
    if place is FLOATING:
        place = haven(tensor, mode.ambient)
        move_record(tensor, place)
    return place


def relocate(mode: Mode, tensor: Tensor, place: Place, *args: Any, **kwargs: Any) -> Tensor:
    """Copy a tensor to another place; the further arguments are those of `Tensor.to` after the device."""
    source = settled(mode, tensor)
    kwargs["copy"] = True
    mode.target = place
    try:
        out = _to(tensor, None, *args, **kwargs)
    finally:
        unseen, mode.target = mode.target is place, None
    if unseen:  # no mode was listening: inside an op of a wrapper subclass, or with modes disabled
        _write_place(out, place)
        mode.session.moved(source, place, out)
    node = out.grad_fn
    if node is not None and source is not place:
        node.register_hook(functools.partial(_carry_back, source))
    return out


def _write_place(tensor: Tensor, place: Place) -> None:
    try:
        storage = storage_of(tensor)
    except NotImplementedError:
        mark_all(tensor, place)
        return
    record = storage._wherry_record  # type: ignore[attr-defined]
    if record[0] is not place:
        refuse(place, tensor.dtype)
        write(storage, place, record[1], record[2])


def _carry_back(
    source: Place, gradients: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...] | None:
    """The hook on a movement's node: its gradient goes back to where the tensor came from."""
    mode = thread.mode
    if mode is None:
        return None
    return tuple(
        g if g is None or settled(mode, g) is source else relocate(mode, g, source, memory_format=torch.preserve_format)
        for g in gradients
    )


def _to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The real `Tensor.to`."""
    # An uninitialized parameter allows some methods by their identity, which a stand-in does not have.
    if isinstance(tensor, UninitializedTensorMixin):
        with without_functions():
            return _Base.to(tensor, *args, **kwargs)
    return _Base.to(tensor, *args, **kwargs)


_device = _Base.device.__get__  # type: ignore[attr-defined]


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Tensor.to: `(device, dtype, ...)`, `(dtype, ...)` or `(other, ...)`."""
    mode = thread.mode
    if mode is None:
        return _to(self, *args, **kwargs)
    if args:
        device, rest = args[0], args[1:]
        if isinstance(device, torch.dtype):
            return _to(self, *args, **kwargs)
    else:
        device, rest = kwargs.pop("device", None), ()
        if device is None and "other" in kwargs:
            device = kwargs.pop("other")
    if device is None:
        return _to(self, None, *rest, **kwargs)
    if isinstance(device, Tensor):
        rest = (device.dtype, *rest)
        device = device.device
    if _is_meta(device) or self.is_meta:
        return _to(self, "cpu" if self.is_meta and not _is_meta(device) else device, *rest, **kwargs)
    if not isinstance(device, int) and is_foreign(mode.session, kind := torch.device(device).type) and kind != "cpu":
        refuse_to_start(kind)
        return _to(self, device, *rest, **kwargs)  # raises as this torch does for a device it was built without
    place = mode.session.resolve(device, moving=True)
    here = settled(mode, self)
    if place is here or (place is HOST and here is PINNED):
        if kwargs.get("copy") or rest[2:3] == (True,):
            return relocate(mode, self, place, *rest[:2], **kwargs)  # a copy, which is told where it is
        return _to(self, None, *rest, **kwargs)
    if len(rest) == 3:  # copy, the last positional argument: a movement copies anyway
        rest = rest[:2]
    kwargs.pop("copy", None)
    return relocate(mode, self, place, *rest, **kwargs)


def _is_meta(device: object) -> bool:
    return device == "meta" or (isinstance(device, torch.device) and device.type == "meta")


_copy, _set_item = _Base.copy_, _Base.__setitem__


def copy_(self: Tensor, other: Tensor, non_blocking: bool = False) -> Tensor:
    """Tensor.copy_: the gradient of the source goes back to where it is."""
    out = _copy(self, other, non_blocking)
    _return_gradient(self, other)
    return out


def set_item(self: Tensor, index: Any, value: Any) -> None:
    """`x[i] = v`, which copies."""
    _set_item(self, index, value)
    _return_gradient(self, value)


def _return_gradient(target: Tensor, source: Any) -> None:
    mode = thread.mode
    if mode is None or not isinstance(source, Tensor) or not source.requires_grad:
        return
    node, place = target.grad_fn, settled(mode, source)
    if node is not None and settled(mode, target) is not place:
        node.register_hook(functools.partial(_carry_source_back, place))


def _carry_source_back(source: Place, gradients: tuple[Tensor | None, ...], outputs: Any) -> Any:
    """The hook on a copy's node, whose second gradient is that of the source."""
    if len(gradients) < 2:
        return None
    carried = _carry_back(source, gradients[1:2], outputs)
    return None if carried is None else (gradients[0], *carried, *gradients[2:])


def _moving_method(device_type: str) -> Any:
    """Tensor.cuda and Tensor.xpu."""
    original = getattr(_Base, device_type)

    def move(
        self: Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: Any = torch.preserve_format,
        **legacy: Any,
    ) -> Tensor:
        mode = thread.mode
        if mode is None:
            return original(self, device, non_blocking, memory_format=memory_format, **legacy)
        session = mode.session
        if session.backend.device_type != device_type:
            raise absent(device_type)
        if device is None:
            device = session.places[session.current_index].device
        elif not isinstance(device, int) and torch.device(device).type != device_type:
            raise RuntimeError(f"Invalid device, must be {device_type} device")
        return self.to(device, non_blocking=legacy.get("async", non_blocking), memory_format=memory_format)

    return functools.wraps(original)(move)


def cpu(self: Tensor, memory_format: torch.memory_format = torch.preserve_format) -> Tensor:
    if thread.mode is None:
        return _Base.cpu(self, memory_format=memory_format)
    return self.to("cpu", memory_format=memory_format)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    if thread.mode is None:
        return _Base.type_as(self, other)
    return self.to(other.device, other.dtype)


def device(self: Tensor) -> torch.device:
    mode = thread.mode
    if mode is None:
        return _device(self)
    place = settled(mode, self)
    return _device(self) if place.index is None else place.device


def get_device(self: Tensor) -> int:
    place = self.device
    return -1 if place.type == "cpu" or place.index is None else place.index


def _is_on(device_type: str) -> Any:
    def is_on(self: Tensor) -> bool:
        return self.device.type == device_type

    return TensorProperty(f"is_{device_type}", is_on, doc=f"Whether the tensor resides on a {device_type} device.")


def numpy(self: Tensor, *, force: bool = False) -> Any:
    mode = thread.mode
    if mode is not None:
        place = settled(mode, self)
        if place.index is not None:
            if not force:
                raise not_convertible_to_numpy(place)
            return _Base.numpy(self.detach().cpu(), force=True)
    return _Base.numpy(self, force=force)


def tolist(self: Tensor) -> Any:
    mode = thread.mode
    if mode is not None:
        mode.session.moved_bytes(settled(mode, self), HOST, self.numel() * self.element_size())
    return _Base.tolist(self)


def pin_memory(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    mode = thread.mode
    if mode is None:
        return _Base.pin_memory(self, *args, **kwargs)
    session = mode.session
    place = settled(mode, self)
    if place.index is not None:
        kind = type_name(self.dtype, place, session.backend)
        raise RuntimeError(f"cannot pin '{kind}' only dense CPU tensors can be pinned")
    if place is PINNED:
        return self
    out = self.detach().clone() if not self.requires_grad else self.clone()
    _write_place(out, session.pinned(HOST))
    return out


def is_pinned(self: Tensor, *args: Any, **kwargs: Any) -> bool:
    if thread.mode is None:
        return _Base.is_pinned(self, *args, **kwargs)
    return residence(self) is PINNED


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """Tensor.type: the name of the tensor's type, or a cast to one, which may move it."""
    mode = thread.mode
    if mode is None:
        return _Base.type(self, dtype, non_blocking, **kwargs)
    backend = mode.session.backend
    if dtype is None:
        place = settled(mode, self)
        return _Base.type(self) if place.index is None else type_name(self.dtype, place, backend)
    if isinstance(dtype, torch.dtype):
        return self.to(dtype, non_blocking=non_blocking)
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    prefix, _, kind = name.rpartition(".")
    target = getattr(torch, kind).dtype
    if prefix == "torch":
        return self.to("cpu", target, non_blocking=non_blocking)
    device_type = prefix.removeprefix("torch.")
    return self.to(torch.device(device_type), target, non_blocking=non_blocking)


def record_stream(self: Tensor, stream: Any) -> None:
    """Tensor.record_stream: nothing to record, since the work on a tensor is done when its op returns."""
    mode = thread.mode
    if mode is None:
        _Base.record_stream(self, stream)
    elif settled(mode, self).index is None:
        try:
            with without_modes():
                torch.ops.aten.record_stream.default(self, torch._C.Stream(stream_id=0, device_index=0, device_type=0))
        except NotImplementedError as error:
            raise without_kernel(mode.session.backend, error) from None


def share_memory_(self: Tensor) -> Tensor:
    """A device's memory is shared by nature (torch/_tensor.py); the host's is moved to shared memory."""
    mode = thread.mode
    if mode is not None and settled(mode, self).index is not None:
        return self
    return _share_memory(self)


_share_memory = Tensor.share_memory_


def _new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Tensor.new: a legacy constructor, at the device of `self`."""
    mode = thread.mode
    if mode is None:
        return _Base.new(self, *args, **kwargs)
    place = settled(mode, self)
    asked = kwargs.pop("device", None)
    if asked is not None:
        place = mode.session.resolve(asked)
    out = _Base.new(self, *args, **kwargs)
    _write_place(out, place)
    return out


def _new_tensor(self: Tensor, data: Any, **kwargs: Any) -> Tensor:
    """Tensor.new_tensor, which copies below the dispatcher."""
    mode = thread.mode
    if mode is None:
        return _Base.new_tensor(self, data, **kwargs)
    asked = kwargs.pop("device", None)
    if asked is None:
        asked = self.device
    with warnings.catch_warnings():
        if not isinstance(data, Tensor):
            warnings.simplefilter("ignore", UserWarning)
        return torch.tensor(data, dtype=kwargs.pop("dtype", None) or self.dtype, device=asked, **kwargs)


def patches() -> Iterator[Patch]:
    """Names of torch.Tensor. They shadow those of its C++ base, so taking them away restores it."""
    yield Patch(Tensor, "device", TensorProperty("device", device, doc=_Base.device.__doc__))
    for device_type in ("cpu", "cuda", "xpu", "mps"):
        yield Patch(Tensor, f"is_{device_type}", _is_on(device_type))
    for name, method in (
        ("to", to),
        ("cpu", cpu),
        ("type_as", type_as),
        ("get_device", get_device),
        ("copy_", copy_),
        ("__setitem__", set_item),
        ("numpy", numpy),
        ("tolist", tolist),
        ("pin_memory", pin_memory),
        ("is_pinned", is_pinned),
        ("type", type_),
        ("record_stream", record_stream),
        ("new", _new),
        ("new_tensor", _new_tensor),
    ):
        yield Patch(Tensor, name, functools.wraps(getattr(_Base, name))(method))
    yield Patch(Tensor, "share_memory_", functools.wraps(_share_memory)(share_memory_))
    for device_type in ("cuda", "xpu"):
        yield Patch(Tensor, device_type, _moving_method(device_type))
