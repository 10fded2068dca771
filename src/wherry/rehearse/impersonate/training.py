"""torch.compile, and what optimizers, checkpoints and TorchScript ask of torch."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from wherry import callsite
from wherry.dispatch import without_modes
from wherry.errors import CannotRehearse
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.records import HOST, mark_all
from wherry.rehearse.surface import thread


class RehearsalWarning(UserWarning):
    """Something that a rehearsal does differently from the real device, said once."""


def _compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile(model: Any = None, **kwargs: Any) -> Any:  # noqa: A001 - torch's name
        if thread.mode is None or not thread.mode.session.places:
            return original(model, **kwargs)
        if model is None:
            return functools.partial(compile, **kwargs)
        callsite.warn(
            "torch.compile runs eagerly in a rehearsal: there is no real device to compile for.", RehearsalWarning
        )
        return model

    return compile


def _compile_module(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
    """Module.compile, in place: stays eager."""
    if thread.mode is None or not thread.mode.session.places:
        _module_compile(self, *args, **kwargs)
    else:
        torch.compile(self)


_module_compile = torch.nn.Module.compile


def _group_tensors(original: Any) -> Any:
    """The C++ function by which optimizers and clipping put tensors of one device and dtype together.

    It sees CPU tensors only, so each of its groups is divided by where the first tensors of its columns reside.
    """

    @functools.wraps(original)
    def stand_in(lists: Any, with_indices: bool = False) -> Any:
        mode = thread.mode
        if mode is None:
            return original(lists, with_indices)
        divided: dict[Any, Any] = {}
        for (_, dtype), (columns, indices) in original(lists, True).items():
            for position, index in enumerate(indices):
                row = [column[position] if column else None for column in columns]
                device = next((t.device for t in row if t is not None), torch.device("cpu"))
                grouped, numbers = divided.setdefault((device, dtype), ([[] for _ in columns], []))
                for column, source, value in zip(grouped, columns, row, strict=True):
                    if source:
                        column.append(value)
                numbers.append(index)
        return divided if with_indices else {key: (columns, []) for key, (columns, _) in divided.items()}

    return stand_in


def _export(original: Any) -> Any:
    """torch.export traces with fake tensors, whose device autograd asks this build for, in C++ that ends the process.

    A module on the host is exported as it would be without a rehearsal.
    """

    @functools.wraps(original)
    def stand_in(mod: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is None:
            return original(mod, *args, **kwargs)
        if any(tensor.device.type != "cpu" for tensor in (*mod.parameters(), *mod.buffers())):
            raise CannotRehearse(
                "torch.export.export", "it traces with tensors that C++ takes for those of a real device"
            )
        thread.mode = None
        try:
            with without_modes():
                return original(mod, *args, **kwargs)
        finally:
            thread.mode = mode

    return stand_in


def _find_builtin(original: Any) -> Any:
    """TorchScript knows torch's functions by identity; a stand-in is compiled as what it stands for."""

    @functools.wraps(original)
    def stand_in(function: Any) -> Any:
        found = original(function)
        return original(function.__wrapped__) if found is None and hasattr(function, "__wrapped__") else found

    return stand_in


def _jit_load(original: Any) -> Any:
    """torch.jit.load reads in C++, which knows the devices of this build alone. So the module comes to the host, and moves."""

    @functools.wraps(original)
    def stand_in(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is None or map_location is None:
            return original(f, map_location, *args, **kwargs)
        module = original(f, "cpu", *args, **kwargs)
        for tensor in (*module.parameters(), *module.buffers()):
            mark_all(tensor, HOST)
        return module.to(map_location)

    return stand_in


def _set_rng_state(original: Any) -> Any:
    @functools.wraps(original)
    def stand_in(new_state: torch.Tensor) -> None:
        if thread.mode is not None and new_state.device.type != "cpu":
            raise TypeError("RNG state must be a torch.ByteTensor")
        original(new_state)

    return stand_in


def patches() -> Iterator[Patch]:
    """torch.compile, and what torch.optim and TorchScript ask."""
    yield Patch(torch.jit._builtins, "_find_builtin", _find_builtin(torch.jit._builtins._find_builtin))
    yield Patch(torch.export, "export", _export(torch.export.export))
    yield Patch(torch.jit, "load", _jit_load(torch.jit.load))
    for module in (torch, torch.random):
        yield Patch(module, "set_rng_state", _set_rng_state(module.set_rng_state))
    yield Patch(
        torch._C, "_group_tensors_by_device_and_dtype", _group_tensors(torch._C._group_tensors_by_device_and_dtype)
    )
    yield Patch(torch, "compile", _compile(torch.compile))
    yield Patch(torch.nn.Module, "compile", functools.wraps(_module_compile)(_compile_module))
