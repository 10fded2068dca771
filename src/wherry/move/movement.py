"""One call of `move`, step by step: look, copy, put together, and only then change what moves in place.

Until the last step nothing that the caller has is touched, so whatever fails before leaves everything where it was.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wherry import callsite, dispatch
from wherry.errors import StrayTensors, UnmovableLeaf
from wherry.move import foreign, in_flight, in_place, kinds
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
        self.modules: list[torch.nn.Module] = []
        self.optimizers: list[Any] = []
        self.in_place: list[Any] = []
        self.entries: list[in_place.Entry] = []
        self.movers: list[Any] = []
        self.arrays: list[Any] = []
        self.of_modules: list[Tensor] = []
        self.with_attributes: list[Tensor] = []
        self.kept: list[Any] = []  # so that no identity is used twice

    def run(self) -> Any:
        """Do it, and return the object in its new place."""
        self._sort()
        self._look_at_attributes()
        self._refuse()
        tensors = [*self.walk.tensors, *self.of_modules] if self.of_modules else self.walk.tensors
        changed: dict[int, Any] = self._carried(tensors)
        if self.wish.copy and self.in_place:
            self._copy_in_place(changed)
        modules = [] if self.wish.copy else self.modules
        # A parameter of a module stays the object that it is, wherever else it occurs.
        copies = dict(changed) if modules else changed
        for module in modules:
            for tensor in module.parameters():
                if id(tensor) in changed and in_place.keeps_its_object(tensor, changed[id(tensor)]):
                    del changed[id(tensor)]
        self._move_by_themselves(changed)
        self._from_arrays(changed)
        self._to_arrays(changed)
        twins = self.walk.twins(changed, all_new=self.wish.copy)
        new = {**changed, **twins} if self.in_place else changed
        if self.in_place and not self.wish.copy:
            self._commit(modules, copies, new)
        root = self.walk.root
        result = twins.get(id(root), changed.get(id(root), root))
        for tensor in self.with_attributes:
            self._move_attributes(vars(changed.get(id(tensor), tensor)), {**changed, **twins})
        self._keep_until_copied(tensors)
        return result

    # -- look

    def _sort(self) -> None:
        """Find out what there is, and what hangs in objects that move in place."""
        found = self.walk.found
        position = 0
        while position < len(found):  # it grows: an optimizer may hold another
            role, obj = found[position]
            position += 1
            if role is Role.MOVER:
                self.movers.append(obj)
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
                        self.entries.append(entry)
                        self.walk.add(entry[2])

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
            for value in vars(tensor).values():
                self.walk.add(value)

    def _take_strays(self, module: torch.nn.Module) -> None:
        if self.wish.strays == "error":
            found = self._strays(module)
            if found:
                raise StrayTensors(
                    [(s.path, str(s.tensor.device), s.fix) for s in found], device=str(self.order.device)
                )
        if self.wish.strays == "move":
            for stray in self._strays(module):
                for entry in in_place.entries_to(stray.found):
                    self.entries.append(entry)
                    self.walk.add(entry[2])

    def _strays(self, module: torch.nn.Module) -> list[Stray]:
        """What hangs in a module and is not where it should be."""

        def elsewhere(name: str) -> list[Stray]:
            return [
                stray
                for stray in left_behind(module, name)
                if stray.tensor.device != self.order.device and not in_place.moves_itself(stray.found)
            ]

        # Only where there are some: what the caller calls the module is read from the source.
        return elsewhere(self._path(module)) if elsewhere("model") else []

    def _refuse(self) -> None:
        """What cannot be done is said before anything is copied."""
        if self.wish.target.library is not None:
            for obj in (*self.in_place, *self.movers):
                reason = f"a {type(obj).__name__} computes with tensors, not with arrays of {self.wish.target.library}"
                fix = "Move its state_dict()." if hasattr(obj, "state_dict") else "Move what is in it."
                raise UnmovableLeaf(self._path(obj), str(self.wish.given), reason=reason, fix=fix)
        casts = self.order.casts
        if not casts:
            return
        wide = [t for t in (*self.walk.tensors, *self.of_modules) if self.order.wanted(t) in casts]
        if not wide:
            return
        first, others = wide[0], len({id(tensor) for tensor in wide}) - 1
        path, device = self._path(first), self.order.device
        was = self.order.wanted(first)
        becomes = casts[was]
        if self.wish.float64 == "error":
            reason = f"{device.type} has no {_name(was)}"
            fix = f'Use {path}.to({becomes}) before, or move(..., float64="convert").'
            raise UnmovableLeaf(path, str(device), reason=reason, fix=fix)
        more = f" and {others} more" if others else ""
        callsite.warn(
            f"{path}{more} became {_name(becomes)} on the way to {device}: {device.type} has no {_name(was)}. "
            f'Convert before to choose that yourself; move(..., float64="error") refuses.',
            UserWarning,
        )

    # -- copy

    def _carried(self, tensors: list[Tensor]) -> dict[int, Any]:
        if not tensors:
            return {}
        try:
            return dict(carry(tensors, self.order, plain=self.walk.plain and not self.of_modules))
        except Failed as failure:
            cause = failure.__cause__
            raise self._unmovable(failure.what, cause) from cause

    def _unmovable(self, obj: Any, cause: BaseException | None) -> UnmovableLeaf:
        reason = str(cause).strip().partition("\n")[0] or type(cause).__name__
        return UnmovableLeaf(self._path(obj), str(self.wish.given), reason=f"{type(cause).__name__}: {reason}")

    def _copy_in_place(self, changed: dict[int, Any]) -> None:
        """With copy=True: copies of modules and optimizers that hold the copies of their tensors."""
        memo: dict[int, Any] = dict(changed)
        for obj in self.in_place:
            try:
                changed[id(obj)] = copy.deepcopy(obj, memo)
            except Exception as err:
                raise self._unmovable(obj, err) from err

    def _move_by_themselves(self, changed: dict[int, Any]) -> None:
        """Objects with a `.to`: of a copy, since many change themselves."""
        for obj in self.movers:
            if id(obj) in changed:
                continue
            inside = kinds.parts_of(type(obj))
            look = None if inside is None else Walk(obj, kind=inside)
            if look is not None and not self.wish.copy and self._is_there(look):
                continue
            try:
                memo: dict[int, Any] = {} if look is None or not self.wish.copy else dict(self._carried(look.tensors))
                twin = obj if look is None else _twin(obj, look, memo)
                moved = _to(twin, self.wish.target.device, self.wish.dtype)
            except UnmovableLeaf:
                raise
            except Exception as err:
                raise self._unmovable(obj, err) from err
            changed[id(obj)] = twin if moved is None else moved
            self.kept.append(moved)

    def _is_there(self, look: Walk) -> bool:
        """Whether all that is seen of an object is where it should be; not where nothing is seen."""
        if any(role is not Role.MODULE for role, _ in look.found):
            return False
        tensors = [*look.tensors, *(tensor for _, module in look.found for tensor in in_place.tensors_of(module))]
        return bool(tensors) and not any(map(self.order.concerns, tensors))

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

    def _commit(self, modules: list[torch.nn.Module], copies: dict[int, Any], new: dict[int, Any]) -> None:
        known = {id(tensor) for tensor in (*self.walk.tensors, *self.of_modules)}

        def replacement(tensor: Tensor) -> Tensor:
            found = copies.get(id(tensor))
            if found is None and id(tensor) not in known:  # a class keeps more than we have seen
                self.kept.append(tensor)
                copies.update(self._carried_late(tensor))
                found = copies.get(id(tensor))
            return tensor if found is None else found

        asked = [m for m in modules if in_place.always_asked(m) or any(id(t) in copies for t in in_place.tensors_of(m))]

        def to(module: torch.nn.Module) -> object:
            return _to(module, self.order.device, self.wish.dtype)

        try:
            in_place.commit(asked, self.entries, new, replacement, to)
        except Failed as failure:
            raise self._unmovable(failure.what, failure.__cause__) from failure.__cause__
        for optimizer in self.optimizers:
            in_place.follow_parameters(optimizer, new)
        for obj in self.in_place:
            if kinds.kind_of(type(obj)) is Role.SCALER:
                in_place.move_settings(obj, self.order.device)
        if self.wish.strays in ("warn", "move"):
            self._warn_of_strays()

    def _carried_late(self, tensor: Tensor) -> dict[int, Tensor]:
        return carry([tensor], self.order, plain=False)

    def _warn_of_strays(self) -> None:
        for module in self.modules:
            found = [stray for stray in self._strays(module) if stray.tensor.device.type != "meta"]
            if found:
                error = StrayTensors(
                    [(s.path, str(s.tensor.device), s.fix) for s in found], device=str(self.order.device)
                )
                callsite.warn(str(error), UserWarning)

    @staticmethod
    def _move_attributes(own: dict[str, Any], new: dict[int, Any]) -> None:
        for name, value in own.items():
            if id(value) in new:
                own[name] = new[id(value)]

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
        return self.walk.path_to(obj, root)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _twin(obj: Any, look: Walk, memo: dict[int, Any]) -> Any:
    """A copy of an object and of the containers in it, over the same tensors."""
    for role, inner in look.found:
        if role is Role.MOVER and id(inner) not in memo:
            inside = kinds.parts_of(type(inner))
            if inside is not None:
                memo[id(inner)] = inner  # should it hold itself
                memo[id(inner)] = _twin(inner, Walk(inner, kind=inside), memo)
    return look.rebuilt(memo, all_new=True)


def _to(obj: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """Call an object's own `to`."""
    if dtype is None:
        return obj.to(device)
    try:
        takes = inspect.signature(obj.to).parameters
    except (TypeError, ValueError):
        takes = {}
    if "dtype" in takes:
        return obj.to(device, dtype=dtype)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in takes.values()):
        return obj.to(device, dtype)
    return obj.to(device)
