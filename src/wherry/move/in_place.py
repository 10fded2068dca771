"""Modules, optimizers, schedulers and scalers: what torch moves in place, so that everybody who holds one still does.

Each is taken in three steps, so that a failure leaves all of them as they were: `tensors_of` says what has to be copied,
the copies are made by `tensors.carry`, and `commit` puts them where the originals were. Should that fail half way, in
somebody's own `_apply`, what was put is taken out again.

A module is moved by its own `_apply`, and by its own `to` where its class has one, but each tensor that they ask for is one of
our copies: so classes that keep more than parameters and buffers are moved as they want to be, and tied buffers and views,
which torch's own function would tear apart, stay together.

An optimizer's state moves, its parameters do not: they are the model's. The step counter stays on the host unless the
optimizer counts on the device (capturable or fused), as `Optimizer.load_state_dict` has it, and so do settings that are
numbers in tensors, such as a learning rate.

Sources: torch/nn/modules/module.py `Module._apply`; torch/optim/optimizer.py `_process_value_according_to_param_policy`;
torch/amp/grad_scaler.py (torch 2.6 to 2.14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from wherry import dispatch, tree
from wherry.move.kinds import Role
from wherry.move.tensors import Failed
from wherry.tree import Found

Entry = tuple[Any, Any, Any]
"""A dictionary that belongs to an object that moves in place, a key of it, and the value there now."""


def entries_of(role: Role, obj: Any, device: torch.device) -> Iterator[Entry]:
    """What may have to be exchanged in an optimizer, a scheduler or a scaler."""
    own = vars(obj)
    if role is Role.OPTIMIZER:
        yield from _of_optimizer(obj, device)
        left = ("state", "param_groups", "defaults")
    else:
        left = ()
    for name, value in own.items():
        if name not in left and not _is_number(value, device):
            yield own, name, value


def _of_optimizer(optimizer: Any, device: torch.device) -> Iterator[Entry]:
    on_device = set[int]()
    for group in optimizer.param_groups:
        counts = bool(group.get("capturable") or group.get("fused"))
        if counts:
            on_device.update(map(id, group["params"]))
        for key, value in group.items():
            if key != "params" and (counts or not _is_number(value, device)):
                yield group, key, value
    for param, state in optimizer.state.items():
        if not isinstance(state, dict):
            yield optimizer.state, param, state
            continue
        for key, value in state.items():
            if key != "step" or id(param) in on_device or not _is_number(value, device):
                yield state, key, value


def _is_number(value: Any, device: torch.device) -> bool:
    """Whether a value is a number in a tensor, or several, that the host reads and that is best off there."""
    if isinstance(value, list | tuple):
        return bool(value) and all(_is_number(item, device) for item in value)
    return isinstance(value, Tensor) and value.dim() == 0 and value.device.type == "cpu" and device.type != "meta"


def tensors_of(module: Module) -> Iterator[Tensor]:
    """Parameters and buffers, each as often as it occurs."""
    for part in module.modules():
        for registry in (part._parameters, part._buffers):  # noqa: SLF001 - `parameters()` leaves out what occurs twice
            yield from (tensor for tensor in registry.values() if tensor is not None)


def always_asked(module: Module) -> bool:
    """Whether a class in it has a say in how it moves, so that it may have to move though nothing of it is seen."""
    if type(module).to is not Module.to and next(tensors_of(module), None) is None:
        return True
    return any(
        type(part)._apply is not Module._apply  # noqa: SLF001 - whether it is overridden
        and not type(part).__module__.startswith("torch.nn.")
        for part in module.modules()
    )


@dataclass(slots=True)
class _Before:
    """A module as it was."""

    registries: list[tuple[Any, dict[str, Any]]] = field(default_factory=list[tuple[Any, dict[str, Any]]])
    params: list[tuple[Tensor, Tensor, Tensor | None, Tensor | None]] = field(default_factory=list[Any])

    @classmethod
    def of(cls, module: Module) -> _Before:
        before = cls()
        for part in module.modules():
            for registry in (part._parameters, part._buffers):  # noqa: SLF001 - they are what is exchanged
                before.registries.append((registry, dict(registry.items())))
            for param in part._parameters.values():  # noqa: SLF001 - as above
                if param is not None and not is_lazy(param):
                    grad = param.grad
                    before.params.append((param, param.data, grad, None if grad is None else grad.data))
        return before

    def restore(self) -> None:
        for registry, items in self.registries:
            for name, value in items.items():
                if registry[name] is not value:
                    registry[name] = value
        for param, data, grad, grad_data in self.params:
            if param.device != data.device or param.dtype != data.dtype or param.data_ptr() != data.data_ptr():
                param.grad = None
                param.data = data
                if grad is not None and grad_data is not None:
                    grad.data = grad_data
            param.grad = grad


def commit(
    modules: list[Module],
    entries: list[Entry],
    new: dict[int, Any],
    replacement: Callable[[Tensor], Tensor],
    to: Callable[[Module], object],
) -> None:
    """Put copies where the originals were.

    Args:
        modules: Those to move, outermost first.
        entries: Where an optimizer and its kin keep what moves.
        new: What takes the place of what, by identity. A parameter that stays the same object is not in it.
        replacement: The copy of a tensor of a module; the tensor itself if it stays.
        to: Calls the `to` of a module whose class has one of its own.

    Raises:
        Failed: a module raised. All are as they were.
    """
    before = [_Before.of(module) for module in modules]
    try:
        for module in modules:
            try:
                if type(module).to is Module.to:
                    module._apply(replacement)  # noqa: SLF001 - what Module.to calls, and classes override
                else:
                    _by_own_to(module, replacement, to)
            except Exception as err:
                if isinstance(err, Failed):
                    raise
                raise Failed(module) from err
        for was in before:
            _put_parameters(was, new)
    except BaseException:
        for was in reversed(before):
            was.restore()
        raise
    for holder, key, value in entries:
        if id(value) in new:
            holder[key] = new[id(value)]


def _by_own_to(module: Module, replacement: Callable[[Tensor], Tensor], to: Callable[[Module], object]) -> None:
    """Let a class's own `to` check and note what it wants, and do the copying for it."""
    own = type(module)._apply  # noqa: SLF001 - what its `to` will call

    def _apply(_: object, *args: Any, **kwargs: Any) -> object:
        return own(module, replacement, *args, **kwargs)

    vars(module)["_apply"] = _apply
    try:
        to(module)
    finally:
        with suppress(KeyError):
            del vars(module)["_apply"]


def _put_parameters(before: _Before, new: dict[int, Any]) -> None:
    """Let parameters that had to become other objects be ours: each once, of its class, with its attributes."""
    for registry, items in before.registries:
        for name, old in items.items():
            if isinstance(old, torch.nn.Parameter) and id(old) in new and registry[name] is not new[id(old)]:
                registry[name] = new[id(old)]


def follow_parameters(optimizer: Any, new: dict[int, Any]) -> None:
    """Let an optimizer hold parameters that had to become other objects."""
    for group in optimizer.param_groups:
        params = group["params"]
        if any(id(param) in new for param in params):
            params[:] = [new.get(id(param), param) for param in params]
    state = optimizer.state
    if any(id(param) in new for param in state):
        items = [(new.get(id(param), param), value) for param, value in state.items()]
        state.clear()
        state.update(items)


def move_settings(scaler: Any, device: torch.device) -> None:
    """Let a GradScaler make its tensors on the device from now on: it keeps the device's name."""
    if device.type != "meta" and isinstance(getattr(scaler, "_device", None), str):
        vars(scaler)["_device"] = device.type


def keeps_its_object(param: Tensor, copy: Tensor) -> bool:
    """Whether a parameter can take the data of its copy, and stay the object that it is."""
    return dispatch.takes_data(param, copy)


# -- what hangs in a module without being registered


def entries_to(found: Found) -> Iterator[Entry]:
    """Where in a module something hangs that no `to` moves: the attribute, or the variable that a function has captured."""
    path = (*found.owners, found.value)
    for position, step in enumerate(found.steps):
        owner, value = path[position], path[position + 1]
        if step.kind is tree.Kind.CELL:
            cell = next(cell for cell in owner.__closure__ if _holds(cell, value))
            yield _Cell(cell), None, value
            return
        if step.kind in (tree.Kind.DEFAULT, tree.Kind.BOUND):
            return
        if isinstance(owner, Module) and step.kind is tree.Kind.ATTRIBUTE and step.key in vars(owner):
            inside = [later.kind for later in found.steps[position + 1 :]]
            if not {tree.Kind.CELL, tree.Kind.DEFAULT, tree.Kind.BOUND} & set(inside):
                yield vars(owner), step.key, value
                return


def _holds(cell: Any, value: object) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:  # not bound yet
        return False


class _Cell:
    """A captured variable, set as a dictionary's item is."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def __setitem__(self, _: object, value: Any) -> None:
        self.cell.cell_contents = value


def moves_itself(found: Found) -> bool:
    """Whether what leads to a tensor is a module whose class has an `_apply` of its own, which may well move it."""
    return any(
        isinstance(owner, Module) and type(owner)._apply is not Module._apply  # noqa: SLF001 - whether it is overridden
        for owner in found.owners
    )


def path_in(module: Module, tensor: object) -> str | None:
    """How one writes the way from a module to one of its parameters and buffers: ".layers[0].weight"."""
    for found in tree.search([("", module)], most=1_000_000, depth=100):
        if found.value is tensor:
            return found.text
    return None
