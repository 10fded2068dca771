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

import copy
from collections.abc import Callable, Iterator
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


@dataclass(frozen=True, slots=True)
class Entry:
    """What hangs in an object that moves in place.

    Attributes:
        holder: What it is an item of: a dictionary, or a captured variable.
        key: Its key.
        value: What is there now.
        text: How it is written after the object: ".state[p]['exp_avg']".
        counts: Whether it is a number, or settings, whose dtype is not that of parameters.
    """

    holder: Any
    key: Any
    value: Any
    text: str
    counts: bool = False


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
            yield Entry(own, name, value, f".{name}", counts=role is not Role.OPTIMIZER)


def parameters_of(optimizer: Any) -> Iterator[Tensor]:
    """What an optimizer optimizes."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _of_optimizer(optimizer: Any, device: torch.device) -> Iterator[Entry]:
    on_device = set[int]()
    for number, group in enumerate(optimizer.param_groups):
        counts = bool(group.get("capturable") or group.get("fused"))
        if counts:
            on_device.update(map(id, group["params"]))
        for key, value in group.items():
            if key != "params" and (counts or not _is_number(value, device)):
                yield Entry(group, key, value, f".param_groups[{number}][{key!r}]", counts=True)
    for param, state in optimizer.state.items():
        if not isinstance(state, dict):
            yield Entry(optimizer.state, param, state, ".state[p]")
            continue
        for key, value in state.items():
            if key != "step" or id(param) in on_device or not _is_number(value, device):
                counts = key == "step" or (isinstance(value, Tensor) and value.dim() == 0 and param.dim() > 0)
                yield Entry(state, key, value, f".state[p][{key!r}]", counts=counts)


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
    if has_own_to(module) and next(tensors_of(module), None) is None:
        return True
    return any(
        type(part)._apply is not Module._apply  # noqa: SLF001 - whether it is overridden
        and not type(part).__module__.startswith("torch.nn.")
        for part in module.modules()
    )


def has_own_to(module: Module) -> bool:
    """Whether a module's class, or the module itself, has a `to` of its own."""
    return type(module).to is not Module.to or "to" in vars(module)


@dataclass(slots=True)
class Before:
    """A module as it was, so that it can be so again."""

    registries: list[tuple[Any, dict[str, Any]]] = field(default_factory=list[tuple[Any, dict[str, Any]]])
    params: list[tuple[Tensor, Tensor, Tensor | None, Tensor | None]] = field(default_factory=list[Any])
    attributes: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list[Any])

    @classmethod
    def of(cls, module: Module) -> Before:
        """Look at a module."""
        before = cls()
        for part in module.modules():
            if type(part)._apply is not Module._apply or has_own_to(part):  # noqa: SLF001 - it may change what it likes
                before.attributes.append((vars(part), dict(vars(part))))
            for registry in (part._parameters, part._buffers):  # noqa: SLF001 - they are what is exchanged
                before.registries.append((registry, dict(registry.items())))
            for param in part._parameters.values():  # noqa: SLF001 - as above
                if param is not None:
                    before._note(param)
        return before

    @classmethod
    def of_parameters(cls, params: list[Tensor]) -> Before:
        """Look at parameters alone."""
        before = cls()
        for param in params:
            before._note(param)
        return before

    def _note(self, param: Tensor) -> None:
        if not is_lazy(param) and not dispatch.is_wrapper(param):
            grad = param.grad
            self.params.append((param, param.data, grad, None if grad is None else grad.data))

    def restore(self) -> None:
        """Make it so again."""
        for own, attributes in self.attributes:
            own.clear()
            own.update(attributes)
        for registry, items in self.registries:
            if isinstance(registry, dict):
                registry.clear()
                registry.update(items)
            else:  # of a scripted module, in C++
                for name, value in items.items():
                    registry[name] = value
        for param, data, grad, grad_data in self.params:
            param.grad = None
            param.data = data
            if grad is not None and grad_data is not None:
                grad.data = grad_data
                param.grad = grad


def commit(
    modules: list[Module],
    loose: list[Tensor],
    *,
    new: dict[int, Any],
    replacement: Callable[[Tensor], Tensor],
    to: Callable[[Module], object],
) -> None:
    """Put copies where the originals were. Whoever calls it puts them back should it fail.

    Args:
        modules: Those to move.
        loose: Parameters to move that are in none of them.
        new: What takes the place of what, by identity. A parameter that stays the same object is not in it.
        replacement: The copy of a tensor of a module; the tensor itself if it stays.
        to: Calls the `to` of a module that has one of its own.

    Raises:
        Failed: a module raised.
    """
    for param in loose:
        if id(param) not in new:
            _give_data(param, replacement)
    before = [Before.of(module) for module in modules]
    for module in modules:
        try:
            if has_own_to(module):
                _by_own_to(module, replacement, to)
            else:
                module._apply(replacement)  # noqa: SLF001 - what Module.to calls, and classes override
        except Exception as err:
            if isinstance(err, Failed):
                raise
            raise Failed(module) from err
    for module, was in zip(modules, before, strict=True):
        if _put_parameters(was, new):
            _let_them_notice(module)


def _give_data(param: Tensor, replacement: Callable[[Tensor], Tensor]) -> None:
    """Let a parameter have the data of its copy, as `Module._apply` does."""
    grad = param.grad
    with torch.no_grad():
        param.data = replacement(param)
        if grad is not None:
            grad.data = replacement(grad)


def _by_own_to(module: Module, replacement: Callable[[Tensor], Tensor], to: Callable[[Module], object]) -> None:
    """Let a class's own `to` check and note what it wants, and do the copying for it."""
    own = module._apply  # noqa: SLF001 - what its `to` will call
    already = vars(module).get("_apply")

    def _apply(_: object, *args: Any, **kwargs: Any) -> object:
        return own(replacement, *args, **kwargs)

    vars(module)["_apply"] = _apply
    try:
        to(module)
    finally:
        vars(module).pop("_apply", None)
        if already is not None:
            vars(module)["_apply"] = already


def _put_parameters(before: Before, new: dict[int, Any]) -> bool:
    """Let parameters that had to become other objects be ours: each once, of its class, with its attributes."""
    any_put = False
    for registry, items in before.registries:
        for name, old in items.items():
            ours = new.get(id(old))
            if isinstance(old, torch.nn.Parameter) and ours is not None and registry[name] is not ours:
                ours.grad = registry[name].grad
                registry[name] = ours
                any_put = True
    return any_put


def _let_them_notice(module: Module) -> None:
    """Let classes that keep their parameters a second time, as LSTM does, look at them again."""
    for part in module.modules():
        if type(part)._apply is not Module._apply:  # noqa: SLF001 - whether it is overridden
            part._apply(lambda tensor: tensor, recurse=False)  # noqa: SLF001 - as above


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


def copy_what_is_missing(obj: Any, twin: Any, memo: dict[int, Any]) -> None:
    """Give the copy of an optimizer what `Optimizer.__getstate__` leaves out: attributes of the class that derives from it."""
    for name, value in vars(obj).items():
        if name not in vars(twin) and not callable(value):
            vars(twin)[name] = copy.deepcopy(value, memo)


def move_settings(scaler: Any, device: torch.device) -> None:
    """Let a GradScaler make its tensors on the device from now on: it keeps the device's name."""
    if device.type != "meta" and isinstance(getattr(scaler, "_device", None), str):
        vars(scaler)["_device"] = device.type


def data_of(twin: Tensor) -> Tensor:
    """What `Module._apply` is to be handed of a copy: of a parameter the bare data, as `Tensor.to` would give."""
    if is_lazy(twin):
        return torch.empty(0, dtype=twin.dtype, device=twin.device)
    if isinstance(twin, torch.nn.Parameter) and not dispatch.is_wrapper(twin):
        with dispatch.without_functions():
            return twin.detach()
    return twin


def keeps_its_object(param: Tensor, twin: Tensor) -> bool:
    """Whether a parameter can take the data of its copy, and stay the object that it is."""
    return dispatch.takes_data(param, twin)


# -- what hangs in a module without being registered


def entry_to(found: Found) -> Entry | None:
    """Where in a module something hangs that no `to` moves: an attribute, or a variable that a function has captured.

    None for what nobody can exchange: a default argument, a bound method, the body of a class.
    """
    path = (*found.owners, found.value)
    fixed = {tree.Kind.DEFAULT, tree.Kind.BOUND, tree.Kind.CLASS}
    for position, step in enumerate(found.steps):
        owner, value = path[position], path[position + 1]
        text = "".join(step.text for step in found.steps[: position + 1])
        inside = {later.kind for later in found.steps[position + 1 :]}
        if step.kind is tree.Kind.CELL and not inside & {tree.Kind.CELL, *fixed}:
            cell = next((cell for cell in owner.__closure__ or () if _holds(cell, value)), None)
            return None if cell is None else Entry(_Cell(cell), None, value, text)
        if step.kind in fixed:
            return None
        own = vars(owner) if isinstance(owner, Module) and step.kind is tree.Kind.ATTRIBUTE else {}
        if step.key in own and not inside & {tree.Kind.CELL, *fixed}:
            return Entry(own, step.key, value, text)
    return None


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


def may_move_itself(found: Found) -> bool:
    """Whether what leads to a tensor is a module whose class has a say in how it moves, and so may well move it.

    Of its methods torch calls the `_apply` of each module, and the `to` of the outermost.
    """
    modules = [owner for owner in found.owners if isinstance(owner, Module)]
    if modules and has_own_to(modules[0]):
        return True
    return any(type(module)._apply is not Module._apply for module in modules)  # noqa: SLF001 - whether it is overridden


def path_in(module: Module, tensor: object) -> str | None:
    """How one writes the way from a module to one of its parameters and buffers: ".layers[0].weight"."""
    for found in tree.search([("", module)], most=1_000_000, depth=100):
        if found.value is tensor:
            return found.text
    return None
