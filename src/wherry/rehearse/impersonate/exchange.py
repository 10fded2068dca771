"""Memory that another library, or another device of this process, reads: DLPack, and the collectives of DataParallel.

A DLPack capsule names the device of its memory in C, which here is always the CPU. Between torch and torch the record
of the storage goes along; any other reader of a virtual device's memory is refused, as it could not read a real one
either. DataParallel's scatter, gather and broadcast exist in C++ only in builds with a device.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.cuda.comm
from torch import Tensor
from torch.nn.parallel import comm

from wherry.errors import CannotRehearse
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.impersonate.tensor import settled
from wherry.rehearse.records import move_all
from wherry.rehearse.running import running_call
from wherry.rehearse.surface import thread
from wherry.storage import Place

_DLPACK = Tensor.__dlpack__
_exported: dict[int, Place] = {}  # id of a capsule that torch itself is about to read -> where its memory resides


def to_dlpack(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Tensor.__dlpack__."""
    mode = thread.mode
    if mode is None:
        return _DLPACK(self, *args, **kwargs)
    place = settled(mode, self)
    if place.index is None:
        return _DLPACK(self, *args, **kwargs)
    wanted = kwargs.get("dl_device")
    if wanted is not None and tuple(wanted) != tuple(self.__dlpack_device__()):
        if kwargs.get("copy") is False:
            raise ValueError(f"cannot move (i.e. copy=False) tensor from {place.name} to cpu without copying.")
        return self.cpu().__dlpack__(*args, **{**kwargs, "dl_device": None, "copy": None})
    reader = running_call()
    module = getattr(reader.callee, "__module__", None) or ""
    if module.startswith("numpy") or (reader.name == "from_dlpack" and not module.startswith("torch")):
        raise RuntimeError("Unsupported device in DLTensor.")
    kwargs.pop("stream", None)
    capsule = torch._C._to_dlpack(self)
    _exported[id(capsule)] = place
    return capsule


def _from_dlpack(original: Any) -> Any:
    @functools.wraps(original)
    def stand_in(ext_tensor: Any, **kwargs: Any) -> Tensor:
        mode = thread.mode
        if mode is None:
            return original(ext_tensor, **kwargs)
        if isinstance(ext_tensor, Tensor) and settled(mode, ext_tensor).index is not None:
            device = kwargs.get("device")
            if device is not None and mode.session.resolve(device) is not settled(mode, ext_tensor):
                if kwargs.get("copy") is False:
                    source, target = tuple(ext_tensor.__dlpack_device__()), (1, 0)
                    raise ValueError(
                        f"cannot move DLPack tensor from device {source} to {target} without copying. Set copy=None or copy=True."
                    )
                return ext_tensor.detach().to(device)
            return ext_tensor.detach().clone() if kwargs.get("copy") else ext_tensor.detach().view(ext_tensor.shape)
        place = _exported.pop(id(ext_tensor), None)
        out = original(ext_tensor, **kwargs)
        if place is not None:
            move_all(out, place)
        return out

    return stand_in


def _export(original: Any) -> Any:
    """torch.utils.dlpack.to_dlpack, a C function that makes a capsule without asking."""

    @functools.wraps(original)
    def stand_in(tensor: Tensor) -> Any:
        return original(tensor) if thread.mode is None else tensor.__dlpack__()

    return stand_in


def _cuda_array_interface(self: Tensor) -> Any:
    mode = thread.mode
    if mode is not None and settled(mode, self).index is not None:
        raise CannotRehearse(
            mode.session.device, "__cuda_array_interface__ hands out an address that no real device could read"
        )
    return _INTERFACE.__get__(self)


_INTERFACE = vars(Tensor)["__cuda_array_interface__"]


# -- DataParallel's collectives, as torch/nn/parallel/comm.py documents them


def _devices(devices: Sequence[Any]) -> list[torch.device]:
    session = thread.mode.session
    return [session.resolve(device).device for device in devices]


def broadcast(tensor: Tensor, devices: Any = None, *, out: Any = None) -> Any:
    if out is not None:
        for target in out:
            target.copy_(tensor)
        return tuple(out)
    return tuple(tensor.to(device) for device in _devices(devices))


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Any, buffer_size: int = 10485760) -> list[list[Tensor]]:
    return [[tensor.to(device) for tensor in tensors] for device in _devices(devices)]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    target = inputs[0].device if destination is None else _devices([destination])[0]
    total = inputs[0].to(target).clone()
    for tensor in inputs[1:]:
        total += tensor.to(target)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 10485760
) -> Any:
    return tuple(reduce_add(tensors, destination) for tensors in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor, devices: Any = None, chunk_sizes: Any = None, dim: int = 0, streams: Any = None, *, out: Any = None
) -> Any:
    count = len(out) if out is not None else len(devices)
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes is not None else tensor.chunk(count, dim)
    if out is not None:
        for target, part in zip(out, parts, strict=True):
            target.copy_(part)
        return tuple(out)
    return tuple(part.to(device) for part, device in zip(parts, _devices(devices), strict=False))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    target = out.device if out is not None else tensors[0].device if destination is None else _devices([destination])[0]
    whole = torch.cat([tensor.to(target) for tensor in tensors], dim)
    return whole if out is None else out.copy_(whole)


def _collective(original: Any, virtual: Any) -> Any:
    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        return original(*args, **kwargs) if mode is None or not mode.session.places else virtual(*args, **kwargs)

    return stand_in


def patches() -> Iterator[Patch]:
    """Names of torch.Tensor, torch.utils.dlpack and torch.nn.parallel.comm."""
    yield Patch(Tensor, "__dlpack__", functools.wraps(_DLPACK)(to_dlpack))
    yield Patch(Tensor, "__cuda_array_interface__", property(_cuda_array_interface))
    for module in (torch, torch.utils.dlpack):
        yield Patch(module, "from_dlpack", _from_dlpack(module.from_dlpack))
        yield Patch(module, "to_dlpack", _export(module.to_dlpack))
    for virtual in (broadcast, broadcast_coalesced, reduce_add, reduce_add_coalesced, scatter, gather):
        for module in (comm, torch.cuda.comm):
            yield Patch(module, virtual.__name__, _collective(getattr(comm, virtual.__name__), virtual))
