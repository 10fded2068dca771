"""One call of `move`, step by step: look, copy, put together, and only then change what moves in place.

Until the last step nothing that the caller has is touched, so whatever fails before leaves everything where it was; and what
fails in it is taken back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wherry import callsite, dispatch
from wherry.errors import StrayTensors, Unconvertible, UnmovableLeaf
from wherry.move import by_itself, foreign, in_flight, in_place, kinds
from wherry.move.destination import Destination
from wherry.move.kinds import Role
from wherry.move.naming import name_of
from wherry.move.tensors import Failed, Order, carry
from wherry.move.walk import Walk
from wherry.where.strays import Stray, left_behind


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller of `move` asked for."""

    target: Destination
    given: object
    dtype: torch.dtype | None
    non_blocking: bool
    copy: bool
    float64: str
    strays: str


class DeviceFull(UnmovableLeaf, torch.OutOfMemoryError):
    """There is no room for something on the device: also what one catches from torch."""


class Movement:
    """One object on its way."""

    def __init__(self, walk: Walk, wish: Wish) -> None:
        self.walk = walk
        self.wish = wish
        target = wish.target
        self.order = Order(
            target.device,
            dtype=wish.dtype,
            casts=target.lacks,
            queues=target.queues and wish.non_blocking,
            copy=wish.copy,
        )
        self.in_place: list[Any] = []  # modules, optimizers, schedulers and scalers
        self.modules: list[torch.nn.Module] = []
        self.of_modules: list[Tensor] = []
        self.optimizers: list[Any] = []
        # Parameters of the optimizers that stand in the object, and in none of its modules.
        self.loose: list[Tensor] = []
        self.outside = set[int]()  # tensors that stand in the object itself
        self.entries: list[in_place.Entry] = []
        self.movers: list[tuple[Any, Walk]] = []  # objects with a `.to` of their own, and what is seen in them
        self.arrays: list[Any] = []
        self.with_attributes: list[Tensor] = []
        self.unreachable: list[tuple[torch.nn.Module, Stray]] = []  # strays that "move" cannot move
        self.self_moving: list[torch.nn.Module] = []  # with strays that their own classes may move
        self.before: list[in_place.Before] = []  # to be restored should anything fail
        self.exchanged: list[tuple[Any, Any, Any]] = []  # as well
        self.deep: dict[int, Any] = {}  # what was copied deeply
        self._sorted = 0
        self.kept: list[Any] = []  # so that no identity is used twice

    def run(self) -> Any:
        """Do it, and return the object in its new place."""
        self._sort()
        self._hold_parameters()
        self._look_at_attributes()
        self._refuse()
        try:
            return self._move()
        except BaseException:
            for holder, key, value in reversed(self.exchanged):
                holder[key] = value
            for before in reversed(self.before):
                before.restore()
            raise

    def _move(self) -> Any:
        tensors = [*self.walk.tensors, *self.of_modules] if self.of_modules else self.walk.tensors
        giving = () if self.wish.copy else (*self.of_modules, *self.loose)
        params = frozenset(id(tensor) for tensor in giving if isinstance(tensor, torch.nn.Parameter))
        # Into MLX's memory there is a way from everywhere, without a copy on the host in between.
        directly = self.wish.target.library == "mlx" and self.wish.dtype is None
        changed = {} if directly else self._carried(tensors, bare=params)
        copies = changed
        if self.wish.copy and self.in_place:
            self._copy_in_place(changed)
        elif self.in_place:
            copies = dict(changed)
            for tensor in giving:
                given = changed.get(id(tensor)) if id(tensor) in params else None
                if given is None:
                    continue
                if in_place.keeps_its_object(tensor, given):
                    del changed[id(tensor)]  # it stays the object that it is, wherever else it occurs
                elif tensor.grad is not None:
                    given.grad = changed.get(id(tensor.grad), tensor.grad)
        self._warn_of_strays()  # before the last step: a warning may be an error
        if not self.wish.copy:
            self._commit(copies, changed)
        self._move_by_themselves(changed)
        self._from_arrays(changed)
        self._to_arrays(changed)
        try:
            twins = self.walk.twins(changed, all_new=self.wish.copy)
        except Exception as err:
            raise self._unmovable(self.walk.at, err) from err
        if self.in_place or self.with_attributes:
            self._finish({**changed, **twins}, changed)
        self._keep_until_copied(tensors)
        root = self.walk.root
        return twins.get(id(root), changed.get(id(root), root))

    def _finish(self, new: dict[int, Any], changed: dict[int, Any]) -> None:
        """Exchange what optimizers and attributes of tensors hold."""
        if not self.wish.copy:
            for entry in self.entries:
                if id(entry.value) in new:
                    entry.holder[entry.key] = new[id(entry.value)]
                    self.exchanged.append((entry.holder, entry.key, entry.value))
            for optimizer in self.optimizers:
                in_place.follow_parameters(optimizer, new)
        for obj in self.in_place:
            if kinds.kind_of(type(obj)) is Role.SCALER:
                in_place.move_settings(changed.get(id(obj), obj), self.order.device)
        for tensor in self.with_attributes:
            _move_attributes(vars(changed.get(id(tensor), tensor)), new)
        self._warn_of_strays(after=True)

    # -- look

    def _sort(self) -> None:
        """Find out what there is, and what hangs in objects that move in place."""
        found = self.walk.found
        if found and not self._sorted:
            self.outside.update(map(id, self.walk.tensors))
        while self._sorted < len(found):  # it grows: an optimizer may hold another
            role, obj = found[self._sorted]
            self._sorted += 1
            if role is Role.MOVER:
                look = by_itself.look_into(obj, self.walk.skip)
                if self.wish.copy or not by_itself.is_there(look, self.order):
                    self.movers.append((obj, look))
                for inner in look.found:  # they move in place, as they would beside it
                    if inner[0] in kinds.IN_PLACE:
                        self.walk.take_in(*inner)
            elif role is Role.FOREIGN:
                self.arrays.append(obj)
            else:
                self.in_place.append(obj)
                if role is Role.MODULE:
                    self.modules.append(obj)
                    self.of_modules += in_place.tensors_of(obj)
                    self._take_strays(obj)
                else:
                    if role is Role.OPTIMIZER:
                        self.optimizers.append(obj)
                    for entry in in_place.entries_of(role, obj, self.wish.target.device):
                        self._take(obj, entry)

    def _take(self, owner: Any, entry: in_place.Entry) -> None:
        if self.walk.skip is None or not self.walk.skip(entry.key, entry.value):
            self.entries.append(entry)
            count = len(self.walk.tensors)
            self.walk.add(entry.value, owner, entry.text)
            if entry.counts:
                self.order.counts.update(map(id, self.walk.tensors[count:]))

    def _hold_parameters(self) -> None:
        """An optimizer's parameters are the model's: as attributes of the optimizer they do not move.

        Where the object holds them beside it, they move in place, so that the optimizer still has them.
        """
        if not self.optimizers:
            return
        of_modules = set(map(id, self.of_modules))
        params = {id(p): p for optimizer in self.optimizers for p in in_place.parameters_of(optimizer)}
        held = {key for key in params if key not in of_modules and key not in self.outside}
        self.loose = [p for key, p in params.items() if key not in of_modules and key in self.outside]
        if held:
            self.walk.tensors[:] = [tensor for tensor in self.walk.tensors if id(tensor) not in held]

    def _look_at_attributes(self) -> None:
        """Attributes of tensors hold tensors, too. Those of a wrapper class are what its own `to` moves."""
        tensors = self.walk.tensors
        if self.walk.plain and not any(map(vars, tensors)):
            return
        self.walk.plain = False
        seen = set[int]()
        position = 0
        while position < len(tensors):  # it grows: an attribute may be a tensor that has some
            tensor = tensors[position]
            position += 1
            if id(tensor) in seen or not vars(tensor) or not self.order.concerns(tensor) or dispatch.is_wrapper(tensor):
                continue
            seen.add(id(tensor))
            self.with_attributes.append(tensor)
            for name, value in vars(tensor).items():
                if self.walk.skip is None or not self.walk.skip(name, value):
                    self.walk.add(value, tensor, f".{name}")
        self._sort()  # an attribute may be a module

    def _take_strays(self, module: torch.nn.Module) -> None:
        if self.wish.strays == "error":
            found = self._strays(module)
            if found:
                raise _stray_tensors(found, self.order.device)
        if self.wish.strays == "move":
            for stray in self._strays(module):
                entry = in_place.entry_to(stray.found)
                if entry is None:
                    self.unreachable.append((module, stray))
                else:
                    self._take(module, entry)

    def _strays(self, module: torch.nn.Module, *, after: bool = False) -> list[Stray]:
        """What hangs in a module and is not where it should be. What its class may move itself can be told after that."""

        def elsewhere(name: str) -> list[Stray]:
            return [stray for stray in left_behind(module, name) if stray.tensor.device != self.order.device]

        found = elsewhere("model")
        if not after and any(in_place.may_move_itself(stray.found) for stray in found):
            self.self_moving.append(module)
        found = [stray for stray in found if in_place.may_move_itself(stray.found) is after]
        if not found:
            return []
        # Only now: what the caller calls the module is read from the source.
        return [stray for stray in elsewhere(self._path(module)) if in_place.may_move_itself(stray.found) is after]

    def _refuse(self) -> None:
        """What cannot be done is said before anything is copied."""
        if self.wish.target.library is not None:
            for obj in (*self.in_place, *(obj for obj, _ in self.movers)):
                reason = f"what a {type(obj).__name__} works with are tensors, no arrays of {self.wish.target.library}"
                fix = "Move its state_dict()." if hasattr(obj, "state_dict") else "Move what is in it."
                raise UnmovableLeaf(self._path(obj), str(self.wish.given), reason=reason, fix=fix)
        casts = self.order.casts
        if self.wish.target.library == "mlx" and any(tensor.dtype is torch.float64 for tensor in self.walk.tensors):
            casts = {} if foreign.mlx_holds(torch.float64) else {torch.float64: torch.float32}
        if not casts:
            return
        inside = [tensor for _, look in self.movers for tensor in look.tensors]
        everything = (*self.walk.tensors, *self.of_modules, *inside)
        wide = [tensor for tensor in everything if self.order.wanted(tensor) in casts]
        if not wide:
            return
        first, others = wide[0], len({id(tensor) for tensor in wide}) - 1
        path, device = self._path(first), self.wish.target.library or str(self.order.device)
        kind = device.partition(":")[0]
        was = self.order.wanted(first)
        becomes = casts[was]
        if self.wish.float64 == "error":
            reason = f"{kind} has no {_name(was)}"
            fix = f'Use {path}.to({becomes}) before, or move(..., float64="convert").'
            raise UnmovableLeaf(path, device, reason=reason, fix=fix)
        more = f" and {others} more" if others else ""
        callsite.warn(
            f"{path}{more} became {_name(becomes)} on the way to {device}: {kind} has no {_name(was)}. "
            f'Convert before to choose that yourself; move(..., float64="error") refuses.',
            UserWarning,
        )

    # -- copy

    def _carried(self, tensors: list[Tensor], *, bare: frozenset[int]) -> dict[int, Any]:
        if not tensors:
            return {}
        try:
            return dict(carry(tensors, self.order, plain=self.walk.plain and not self.of_modules, bare=bare))
        except Failed as failure:
            raise self._unmovable(failure.what, failure.__cause__) from failure.__cause__

    def _unmovable(self, obj: Any, cause: BaseException | None) -> UnmovableLeaf:
        reason = str(cause).strip().partition("\n")[0]
        reason = f"{type(cause).__name__}: {reason}" if reason else type(cause).__name__
        path, device = self._path(obj), str(self.wish.given)
        if isinstance(cause, torch.OutOfMemoryError):
            fix = "Free memory there, or move less at a time."
            return DeviceFull(path, device, reason=reason.partition(". GPU ")[0], fix=fix)
        fix = None
        if isinstance(obj, Tensor) and obj.is_meta:
            fix = "A meta tensor has no values yet: load them first, or make room for them with module.to_empty(device=...)."
        elif isinstance(cause, Unconvertible):
            reason = str(cause)
        elif obj is not self.walk.root and not any(obj is tensor for tensor in self.of_modules):
            fix = "To leave it where it is, name its key or its class in move(..., skip=...)."
        return UnmovableLeaf(path, device, reason=reason, fix=fix)

    def _copy_in_place(self, changed: dict[int, Any]) -> None:
        """With copy=True: copies of modules and optimizers that hold the copies of their tensors."""
        self.deep.update(changed)
        for obj in self.in_place:
            try:
                if isinstance(obj, torch.jit.ScriptModule):
                    twin: Any = self._scripted_twin(obj)
                else:
                    twin = copy.deepcopy(obj, self.deep)
                    if not isinstance(obj, torch.nn.Module):
                        in_place.copy_what_is_missing(obj, twin, self.deep)
            except Exception as err:
                raise self._unmovable(obj, err) from err
            changed[id(obj)] = twin

    def _scripted_twin(self, module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
        """A copy of a scripted module. It is made in C++, which knows nothing of our copies, and leaves no leaf a leaf."""

        def replacement(tensor: Tensor) -> Tensor:
            return in_place.data_of(carry([tensor], self.order, plain=False).get(id(tensor), tensor))

        with torch.no_grad():
            twin = copy.deepcopy(module)
        for param, old in zip(twin.parameters(), module.parameters(), strict=True):
            param.requires_grad_(old.requires_grad)
        return twin._apply(replacement)  # noqa: SLF001 - what Module.to calls

    def _move_by_themselves(self, changed: dict[int, Any]) -> None:
        """Objects with a `.to` of their own."""
        for obj, look in self.movers:
            try:
                result = by_itself.moved(obj, look, self.order, changed, self.deep)
            except Exception as err:
                raise self._unmovable(obj, err) from err
            changed[id(obj)] = result
            self.kept.append(result)

    def _from_arrays(self, changed: dict[int, Any]) -> None:
        """Arrays of MLX become tensors, unless it is MLX that they are to go to."""
        if self.wish.target.library == "mlx":
            return
        for array in self.arrays:
            try:
                tensor = foreign.from_mlx(array)
                changed[id(array)] = self.order.copied(tensor, self.order.dtype_of(tensor), copy=self.order.copy)
            except Exception as err:
                raise self._unmovable(array, err) from err

    def _to_arrays(self, changed: dict[int, Any]) -> None:
        """Tensors, which are on the host by now, become arrays."""
        library = self.wish.target.library
        if library is None:
            return
        convert = foreign.to_numpy if library == "numpy" else foreign.to_mlx
        for original in (*self.walk.tensors, *(self.arrays if library == "numpy" else ())):
            tensor = changed.get(id(original), original)
            if isinstance(tensor, Tensor):
                try:
                    changed[id(original)] = convert(tensor)
                except Exception as err:
                    raise self._unmovable(original, err) from err

    # -- put

    def _commit(self, copies: dict[int, Any], new: dict[int, Any]) -> None:
        known = {id(tensor) for tensor in (*self.walk.tensors, *self.of_modules)}

        def replacement(tensor: Tensor) -> Tensor:
            found = copies.get(id(tensor))
            if found is None and id(tensor) not in known:  # a class keeps more than we have seen
                self.kept.append(tensor)
                copies.update(carry([tensor], self.order, plain=False))
                found = copies.get(id(tensor))
            return tensor if found is None else in_place.data_of(found)

        def to(module: torch.nn.Module) -> object:
            return by_itself.call_to(module, self.order.device, self.wish.dtype)

        asked = [
            module
            for module in self.modules
            if in_place.always_asked(module) or any(id(tensor) in copies for tensor in in_place.tensors_of(module))
        ]
        self.before = [in_place.Before.of_parameters(self.loose), *map(in_place.Before.of, asked)]
        try:
            in_place.commit(asked, self.loose, new=new, replacement=replacement, to=to)
        except Failed as failure:
            raise self._unmovable(failure.what, failure.__cause__) from failure.__cause__

    def _warn_of_strays(self, *, after: bool = False) -> None:
        if self.wish.strays == "move" and not after:
            found = [stray for _, stray in self.unreachable]
        elif after or self.wish.strays == "warn":
            modules = self.self_moving if after else self.modules
            found = [stray for module in modules for stray in self._strays(module, after=after)]
        else:
            return
        found = [stray for stray in found if stray.tensor.device.type != "meta"]
        if self.wish.strays == "error" and found:
            raise _stray_tensors(found, self.order.device)
        if found and self.wish.strays != "ignore":
            error = _stray_tensors(found, self.order.device, movable=self.wish.strays == "warn" and not after)
            callsite.warn(str(error), UserWarning)

    def _keep_until_copied(self, tensors: list[Tensor]) -> None:
        """A queued copy reads its source after this has returned."""
        if not self.order.queues:
            return
        pinned = [tensor for tensor in tensors if tensor.device.type == "cpu" and tensor.is_pinned()]
        if pinned:
            event = torch.get_device_module(self.order.device.type).Event()
            event.record()
            in_flight.keep(event, pinned)

    # -- say

    def _path(self, obj: object) -> str:
        """How the caller would write the way to something."""
        root = name_of("model" if isinstance(self.walk.root, torch.nn.Module) else "obj")
        if any(obj is tensor for tensor in self.of_modules):
            for module in self.modules:
                path = in_place.path_in(module, obj)
                if path is not None:
                    return self.walk.path_to(module, root) + path
        for mover, look in self.movers:
            if obj is not mover and any(obj is tensor for tensor in look.tensors):
                return look.path_to(obj, self.walk.path_to(mover, root))
        return self.walk.path_to(obj, root)


def _move_attributes(own: dict[str, Any], new: dict[int, Any]) -> None:
    for name, value in own.items():
        if id(value) in new:
            own[name] = new[id(value)]


def _stray_tensors(found: Iterable[Stray], device: torch.device, *, movable: bool = True) -> StrayTensors:
    return StrayTensors(
        [(stray.path, str(stray.tensor.device), stray.fix) for stray in found], device=str(device), movable=movable
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
