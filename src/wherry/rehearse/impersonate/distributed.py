"""torch.distributed: a process group of the device's own library becomes gloo, which moves bytes between CPU processes.

PyTorch's own code makes the group: it sees NCCL (XCCL) built in, and a class of that name whose instances are gloo's.
So a group is "nccl" to whoever asks, other names fail in PyTorch's own words, and a tensor of a device that the group
has no backend for is refused as by the real one.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherry.rehearse.absence import exception
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.surface import thread
from wherry.rehearse.wording import torch_release

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

_LIBRARIES = {"nccl": "cuda", "xccl": "xpu"}  # backend -> whose it is

# Methods of a process group that move tensors, and the op each one is (torch/csrc/distributed/c10d/Ops.cpp).
_COLLECTIVES = {
    "allreduce": "allreduce_",
    "allreduce_coalesced": "allreduce_coalesced_",
    "broadcast": "broadcast_",
    "reduce": "reduce_",
    "allgather": "allgather_",
    "_allgather_base": "_allgather_base_",
    "all_gather_single": "_allgather_base_",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced_",
    "allgather_coalesced": "allgather_coalesced_",
    "allgather_into_tensor_coalesced": "allgather_into_tensor_coalesced_",
    "gather": "gather_",
    "scatter": "scatter_",
    "reduce_scatter": "reduce_scatter_",
    "_reduce_scatter_base": "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced_",
    "reduce_scatter_single": "_reduce_scatter_base_",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced_",
    "alltoall": "alltoall_",
    "alltoall_base": "alltoall_base_",
    "all_to_all_single": "alltoall_base_",
    "send": "send",
    "recv": "recv_",
    "recv_anysource": "recv_any_source_",
}


def _is_library_of(session: Rehearsal, name: str) -> bool:
    return bool(session.places) and _LIBRARIES[name] == session.backend.device_type


def _available(name: str, original: Callable[[], bool]) -> Callable[[], bool]:
    """is_nccl_available, is_xccl_available."""

    @functools.wraps(original)
    def is_available() -> bool:
        mode = thread.mode
        return original() if mode is None else _is_library_of(mode.session, name)

    return is_available


def _group_class(name: str, original: Any) -> type:
    """ProcessGroupNCCL: a class that makes gloo's groups, and of which no group is an instance."""
    from torch.distributed import ProcessGroupGloo

    class Options:
        """ProcessGroupNCCL.Options: kept, and without effect."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.is_high_priority_stream = False
            self.global_ranks_in_group: list[int] = []
            self.group_name = ""
            self._timeout: Any = None

    class Type(type):
        def __instancecheck__(cls, instance: object) -> bool:
            if _making.group and isinstance(instance, ProcessGroupGloo):
                return True  # the code that makes a group asserts that it got what it asked for
            return original is not None and isinstance(instance, original)

        def __getattr__(cls, attribute: str) -> Any:
            if original is None:
                raise AttributeError(attribute)
            return getattr(original, attribute)

    def make(cls: type, store: Any, rank: int, size: int, options: Any = None, *rest: Any, **named: Any) -> Any:
        mode = thread.mode
        if mode is None or not _is_library_of(mode.session, name):
            if original is None:
                raise NameError(f"name 'ProcessGroup{name.upper()}' is not defined")
            return original(store, rank, size, options, *rest, **named)
        timeout = getattr(options, "_timeout", None)
        return ProcessGroupGloo(store, rank, size, *([timeout] if timeout is not None else []))

    return Type(f"ProcessGroup{name.upper()}", (), {"__new__": make, "Options": Options})


def _also_on_cpu(original: Any) -> Any:
    """_new_process_group_helper: the tensors of the device really are the CPU's, so C++ looks for the CPU's backend."""

    @functools.wraps(original)
    def new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is None or not mode.session.places:
            return original(*args, **kwargs)
        _making.group = True
        try:
            group, store = original(*args, **kwargs)
        finally:
            _making.group = False
        device_type = mode.session.backend.device_type
        if {device.type for device in getattr(group, "_device_types", ())} == {device_type}:
            from torch.distributed.distributed_c10d import Backend, _world

            config = _world.pg_backend_config.get(group, "")
            name = config.partition(":")[2].split(",")[0] or "gloo"
            backend = group._get_backend(torch.device(device_type))
            group._register_backend(torch.device("cpu"), Backend.backend_type_map[name], backend)
            _own_types[group] = frozenset({device_type})
        return group, store

    return new_process_group_helper


# A group -> the device types it has a backend for, where the CPU is not among them.
_own_types: weakref.WeakKeyDictionary[Any, frozenset[str]] = weakref.WeakKeyDictionary()


class _Making(threading.local):
    group = False


_making = _Making()


def refuse(group: Any, op: str, tensors: list[Tensor]) -> None:
    """Raise if the group cannot move these tensors."""
    mode = thread.mode
    if mode is None or not mode.session.places or not tensors:
        return
    device_type = tensors[0].device.type
    own = _own_types.get(group)
    if own is not None and device_type not in own:
        raise RuntimeError(f"No backend type associated with device type {device_type}")
    kernels = mode.session.backend.kernels
    if device_type == mode.session.backend.device_type and kernels is not None and torch_release() >= (2, 11):
        words = kernels.error_by_namespace.get("c10d")
        if words is not None:
            kind, text = words
            raise exception(kind, text.format(operator=f"c10d::{op}", commit=torch.version.git_version))


def _device_types(original: Callable[[Any], list[torch.device]]) -> Callable[[Any], list[torch.device]]:
    """Device types that a group has a backend for, without the CPU's that only C++ needs."""

    def device_types(self: Any) -> list[torch.device]:
        own = _own_types.get(self)
        return [device for device in original(self) if own is None or device.type in own]

    return device_types


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _checked(op: str, original: Any) -> Any:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.mode is not None:
            refuse(self, op, list(_tensors((*args, *kwargs.values()))))
        return original(self, *args, **kwargs)

    return method


def _verify(original: Any) -> Any:
    """What DDP does first with the parameters of a module, in C++."""

    @functools.wraps(original)
    def verify(group: Any, params: Any, *rest: Any) -> Any:
        if thread.mode is not None:
            refuse(group, "allgather_", list(params))
        return original(group, params, *rest)

    return verify


def patches() -> Iterator[Patch]:
    """Names of torch.distributed, where it is built in."""
    if not torch.distributed.is_available():
        return
    c10d = torch.distributed.distributed_c10d
    for name in _LIBRARIES:
        question = f"is_{name}_available"
        for module in (torch.distributed, c10d):
            if hasattr(module, question):
                yield Patch(module, question, _available(name, getattr(module, question)))
        group = f"ProcessGroup{name.upper()}"
        yield Patch(c10d, group, _group_class(name, vars(c10d).get(group)))
    yield Patch(c10d, "_new_process_group_helper", _also_on_cpu(c10d._new_process_group_helper))
    for method, op in _COLLECTIVES.items():
        original = getattr(torch.distributed.ProcessGroup, method, None)
        if original is not None:
            yield Patch(torch.distributed.ProcessGroup, method, _checked(op, original))
    types = vars(torch.distributed.ProcessGroup)["_device_types"]
    yield Patch(
        torch.distributed.ProcessGroup, "_device_types", property(_device_types(types.__get__), doc=types.__doc__)
    )
    if (
        vars(c10d).get("default_pg_nccl_timeout", c10d) is None
    ):  # a build without NCCL has none, and warns when it is asked
        yield Patch(c10d, "default_pg_nccl_timeout", timedelta(minutes=10))  # kProcessGroupNCCLDefaultTimeout
    yield Patch(
        torch.distributed, "_verify_params_across_processes", _verify(torch.distributed._verify_params_across_processes)
    )
