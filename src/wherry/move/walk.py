"""What is inside of a nested object, and the same object with other things inside.

`Walk(obj)` looks through an object once and lists the tensors and the objects that move in place or by themselves.
`rebuilt(changed)` gives the object with some of them exchanged: what holds none of those stays the very same object, and what
appears twice appears twice again. Nothing recurses, so that depth is no limit, and an object may contain itself.

The first look is what a batch costs that is already where it should be: a list of tensors is read by C, not item by item
(benchmarks/move.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from wherry.move.containers import ATOMS, Attribute, Kind, step_text
from wherry.move.kinds import Role, kind_of, parts_of

_ONLY_TENSORS = {Tensor}
_SHOWN = 5  # steps at either end of a path that is too long to be read


Path = tuple[tuple[bool, object], ...]
"""Steps from a container to a part of one in it: each an attribute, or not, and its name or key."""


class Skip:
    """What is to be left alone: by the key or attribute that leads to it, or by its class."""

    def __init__(self, names: frozenset[str], classes: tuple[type, ...]) -> None:
        self.names = names
        self.classes = classes

    def __call__(self, name: object, value: object) -> bool:
        return (isinstance(name, str) and str(name) in self.names) or isinstance(value, self.classes)


class Walk:
    """An object, looked through.

    Attributes:
        root: The object.
        tensors: The tensors in it, each as often as it occurs.
        plain: Whether all of them are of the class `torch.Tensor` itself.
        found: Objects of other roles than tensors, each once.
        at: What is being put together, for who has to say where it failed.

    Args:
        kind: How to take the object itself apart, if not as its class has it.
        through: Whether to take objects apart that would move themselves.
    """

    def __init__(self, root: Any, *, skip: Skip | None = None, kind: Kind | None = None, through: bool = False) -> None:
        self.root = root
        self.tensors: list[Any] = []
        self.plain = True
        self.found: list[tuple[Role, Any]] = []
        self.skip = skip
        self._through = through
        self._named: dict[int, tuple[Any, str]] = {}  # what was added: of what it is a part, and how that is written
        self.at: Any = root  # the container that is being put together
        self._objects: list[Any] = []  # containers, breadth first
        self._kinds: list[Kind] = []
        self._values: list[list[Any]] = []
        self._others: list[tuple[int, int]] = []  # (container, another one that holds it)
        self._index: dict[int, int] = {}
        self._seen: set[int] = set()
        self._refers = False  # whether there are weak references, which may lead back into the object
        self._kept: dict[int, dict[int, Any]] = {}  # container -> position -> what is skipped there
        if kind is None:
            self._take((root,), -1)
        else:
            self._add(root, kind)
        self._go()

    def add(self, obj: Any, owner: Any, text: str) -> None:
        """Look through one more object, which is a part of another one by a way that is written so."""
        self._named.setdefault(id(obj), (owner, text))
        self._take((obj,), -1)
        self._go()

    def take_in(self, role: Role, obj: Any) -> None:
        """Note an object of another role that was found elsewhere."""
        if id(obj) not in self._seen:
            self._seen.add(id(obj))
            self.found.append((role, obj))

    def _go(self) -> None:
        objects, kinds, all_values, take = self._objects, self._kinds, self._values, self._take
        position = len(all_values)
        while position < len(objects):
            values = kinds[position].values(objects[position])
            if self.skip is not None:
                values = self._without_skipped(position, values)
            all_values.append(values)
            types = set(map(type, values))
            if types == _ONLY_TENSORS:
                self.tensors += values
            elif not types <= ATOMS:
                take(values, position)
            position += 1

    def _take(self, values: Any, owner: int) -> None:
        index, objects, kinds = self._index, self._objects, self._kinds
        for value in values:
            cls = type(value)
            if cls is Tensor:
                self.tensors.append(value)
                continue
            if cls in ATOMS:
                continue
            kind = kind_of(cls)
            if self._through and kind is Role.MOVER:
                kind = parts_of(cls) or kind
            if kind.__class__ is not Role:
                known = index.get(id(value))
                if known is None:
                    index[id(value)] = len(objects)
                    objects.append(value)
                    kinds.append(kind)  # type: ignore[arg-type] # no role, so a kind
                elif owner >= 0:
                    self._others.append((known, owner))
            elif kind is Role.TENSOR:
                self.plain = False
                self.tensors.append(value)
            elif kind is Role.OPAQUE:
                self._refers = self._refers or cls is weakref.ref
            elif id(value) not in self._seen:
                self._seen.add(id(value))
                self.found.append((kind, value))  # type: ignore[arg-type] # a role

    def _add(self, obj: Any, kind: Kind) -> None:
        self._index[id(obj)] = len(self._objects)
        self._objects.append(obj)
        self._kinds.append(kind)

    def _without_skipped(self, position: int, values: list[Any]) -> list[Any]:
        assert self.skip is not None
        names = self._kinds[position].names(self._objects[position])
        kept = {i: v for i, (n, v) in enumerate(zip(names, values, strict=True)) if self.skip(n, v)}
        if not kept:
            return values
        self._kept[position] = kept
        return [None if i in kept else value for i, value in enumerate(values)]

    def places(self) -> dict[Path, tuple[int, int]]:
        """Where everything is, by the steps that lead there: the container and the position in it."""
        paths: dict[int, Path] = {0: ()}
        found: dict[Path, tuple[int, int]] = {}
        for position, values in enumerate(self._values):
            here = paths.get(position)
            if here is None:
                continue  # in what was added
            for i, name in enumerate(self._kinds[position].names(self._objects[position])):
                path = (*here, (isinstance(name, Attribute), name))
                found[path] = (position, i)
                inner = self._index.get(id(values[i]))
                if inner is not None:
                    paths.setdefault(inner, path)
        return found

    def part(self, place: tuple[int, int]) -> Any:
        """What is at one of `places`."""
        return self._values[place[0]][place[1]]

    def skipped(self) -> Iterator[tuple[tuple[int, int], Any]]:
        """What is left alone, with its place."""
        for position, kept in self._kept.items():
            for i, value in kept.items():
                yield (position, i), value

    def keep(self, place: tuple[int, int], value: Any) -> None:
        """Let something stand at a place, whatever is there now, in the object that is put together."""
        self._kept.setdefault(place[0], {})[place[1]] = value

    # -- the other object

    def rebuilt(self, changed: Mapping[int, Any], *, all_new: bool = False) -> Any:
        """The object with things exchanged.

        Args:
            changed: What takes the place of what: by the identity of what is in there now.
            all_new: Whether each container is to be a new one, though nothing in it changes.
        """
        if not self._objects:
            return changed.get(id(self.root), self.root)
        twins = self.twins(changed, all_new=all_new)
        return twins.get(id(self.root), changed.get(id(self.root), self.root))

    def twins(self, changed: Mapping[int, Any], *, all_new: bool = False) -> dict[int, Any]:
        """The new containers, by the identity of those whose place they take."""
        if not self._others and not self._kept and not self._refers:
            return self._twins_of_tree(changed, all_new)
        dirty = [True] * len(self._objects) if all_new else self._dirty(changed)
        new = dict(changed)
        for position, obj in enumerate(self._objects):
            if dirty[position] and self._kinds[position].mutable:
                self.at = obj
                new[id(obj)] = self._kinds[position].shell(obj)
        # Parts before the whole, so that a set can ask its elements for their hash. In a cycle something has to wait.
        waiting = self._parts_first(dirty)
        while waiting:
            left = [position for position in waiting if not self._finish(position, new, dirty)]
            if len(left) == len(waiting):
                raise ValueError("it contains itself in a way that cannot be put together anew")
            waiting = left
        return {id(obj): new[id(obj)] for position, obj in enumerate(self._objects) if dirty[position]}

    def _parts_first(self, dirty: list[bool]) -> list[int]:
        """The containers that change, each behind those that are in it, as far as that can be."""
        order: list[int] = []
        seen = [not changes for changes in dirty]
        for first in range(len(dirty)):
            stack = [] if seen[first] else [(first, self._parts(first))]
            seen[first] = True
            while stack:
                position, parts = stack[-1]
                part = next(parts, None)
                if part is None:
                    order.append(position)
                    stack.pop()
                elif not seen[part]:
                    seen[part] = True
                    stack.append((part, self._parts(part)))
        return order

    def _parts(self, position: int) -> Iterator[int]:
        """The containers in a container."""
        for value in self._values[position]:
            known = self._index.get(id(value))
            if known is not None:
                yield known

    def _finish(self, position: int, new: dict[int, Any], dirty: list[bool]) -> bool:
        """Build, fill and dress one container. False if a part of it is still missing."""
        obj, kind = self._objects[position], self._kinds[position]
        self.at = obj
        if any(dirty[part] and id(self._objects[part]) not in new for part in self._parts(position)):
            return False
        values = self._exchanged(position, new)
        if kind.mutable:
            kind.fill(new[id(obj)], obj, values[: self._count(position)])
        else:
            new[id(obj)] = kind.build(obj, values[: self._count(position)])
        if kind.has_attributes:
            kind.dress(new[id(obj)], obj, values)
        return True

    def _twins_of_tree(self, changed: Mapping[int, Any], all_new: bool) -> dict[int, Any]:
        """The same where each container occurs once: then each stands behind the one that holds it."""
        new = dict(changed)
        get, holds_none = new.get, new.keys().isdisjoint
        made: dict[int, Any] = {}
        position = len(self._objects)
        for obj, kind, values in zip(
            reversed(self._objects), reversed(self._kinds), reversed(self._values), strict=True
        ):
            position -= 1
            if not all_new and holds_none(map(id, values)):
                continue
            self.at = obj
            exchanged = list(map(get, map(id, values), values))
            if kind.has_attributes:
                twin = kind.again(obj, exchanged[: self._count(position)])
                kind.dress(twin, obj, exchanged)
            else:
                twin = kind.again(obj, exchanged)
            new[id(obj)] = made[id(obj)] = twin
        return made

    def _count(self, position: int) -> int:
        """How many of the parts are items, which attributes follow."""
        if not self._kinds[position].has_attributes:
            return len(self._values[position])
        return len(self._kinds[position].items(self._objects[position]))

    def _exchanged(self, position: int, new: Mapping[int, Any]) -> list[Any]:
        values = self._values[position]
        exchanged = list(map(new.get, map(id, values), values))
        for i, value in self._kept.get(position, {}).items():
            exchanged[i] = value
        if self._refers:
            for i, value in enumerate(exchanged):
                if type(value) is weakref.ref and id(value()) in new:
                    exchanged[i] = weakref.ref(new[id(value())])
        return exchanged

    def _dirty(self, changed: Mapping[int, Any]) -> list[bool]:
        """Which containers hold something that changes, themselves or further down."""
        keys = changed.keys()
        dirty = [not keys.isdisjoint(map(id, values)) for values in self._values]
        origins = self._origins()
        for position in range(len(dirty) - 1, 0, -1):  # a container stands behind the one it was found in
            if dirty[position] and origins[position] >= 0:
                dirty[origins[position]] = True
        holders: dict[int, list[int]] = {}
        for held, holder in self._others:
            holders.setdefault(held, []).append(holder)
        todo = [held for held in holders if dirty[held]]
        while todo:
            for holder in (*holders.get(todo.pop(), ()),):
                while holder >= 0 and not dirty[holder]:
                    dirty[holder] = True
                    todo.append(holder)
                    holder = origins[holder]
        return dirty

    def _origins(self) -> list[int]:
        """The container that each was first found in; -1 for the ones that the look began with."""
        origins = [-1] * len(self._objects)
        for position, values in enumerate(self._values):
            for value in values:
                held = self._index.get(id(value), 0)
                if origins[held] < 0 and held > position:
                    origins[held] = position
        return origins

    # -- where something is

    def path_to(self, obj: object, name: str) -> str:
        """How a person writes the way to an object: "batch['labels'][2]"."""
        if obj is self.root:
            return name
        for position, values in enumerate(self._values):
            for i, value in enumerate(values):
                if value is obj:
                    return self._path(position, i, name)
        if id(obj) in self._named:
            owner, text = self._named[id(obj)]
            return self.path_to(owner, name) + text
        return name

    def _path(self, position: int, i: int, name: str) -> str:
        steps = [step_text(self._kinds[position].names(self._objects[position])[i])]
        origins = self._origins()
        while origins[position] >= 0:
            held, position = self._objects[position], origins[position]
            i = next(i for i, value in enumerate(self._values[position]) if value is held)
            steps.append(step_text(self._kinds[position].names(self._objects[position])[i]))
        steps.reverse()
        start = self._objects[position]
        if start is not self.root:
            name = self.path_to(start, name)
        if len(steps) > 4 * _SHOWN:
            left_out = len(steps) - 2 * _SHOWN
            steps[_SHOWN:-_SHOWN] = [f" ... {left_out:,} more ... "]
        return name + "".join(steps)
