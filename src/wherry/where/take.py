"""Taking the inventory of an object: one walk, one entry for each tensor, totals, and then what is astray.

The tensors are looked at during the walk; afterwards only facts are kept. A tensor is known by its identity and a storage by
its key, so that each counts once, by whatever paths it is met.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from wherry import tree
from wherry.tree import Kind, Step
from wherry.where import judge, walk
from wherry.where.inventory import Astray, Branch, Entry, Inventory, Role, Shared, Total
from wherry.where.measure import Facts, gradient_below, measure_below
from wherry.where.strays import fix_of, stays, why_of

_PATHS = 100  # of one group of tied tensors or aliases
_STEPS = 600_000  # in all the paths of strays together: as many as take about a second


def take(obj: Any, name: str) -> Inventory:
    """The inventory of an object, not of a file."""
    import torch  # noqa: F401 - a module or a tensor is known by its class, which has to be there

    from wherry.dispatch import without_functions

    taker = _Taker(name, obj)
    with warnings.catch_warnings(), without_functions():
        warnings.simplefilter("ignore")  # of prototypes: sparse, nested
        taker.look()
    return taker.inventory()


class _Taker:
    def __init__(self, name: str, obj: Any) -> None:
        self.name = name
        self.obj = obj
        self.entries: list[Entry] = []
        self.seen: dict[int, Entry] = {}  # by the identity of the tensor
        self.storages: dict[Any, Entry] = {}
        self.tied: dict[int, list[Any]] = {}
        self.aliases: dict[Any, list[Any]] = {}
        self.again: dict[int, list[Any]] = {}
        self.keep: list[Any] = []  # gradients, whose objects nobody else need keep
        # Branches, in the order in which they were met: a parent stands before its children.
        self.branches: list[Branch] = []
        self.met: list[walk.Branch] = []
        self.devices: list[set[str]] = []  # of what is registered in each, itself and below
        self.registered: dict[int, list[Entry]] = {}
        self.named: dict[int, walk.Branch] = {}  # by the identity of a module
        self.left: list[tuple[Entry, walk.Leaf]] = []
        self.batches: dict[int, tuple[str, list[Entry]]] = {}
        self.strays: list[Astray] = []
        self.notes: list[str] = []

    # -- during the walk

    def look(self) -> None:
        """Walk through the object."""
        for met in walk.walk([(self.name, self.obj)]):
            if isinstance(met, walk.Again):
                self._again(met.branch)
            else:
                self._leaf(met)
        self._judge()

    def _branch(self, branch: walk.Branch) -> int:
        """The number of a branch, which it gets, with everything above it, when it is first needed."""
        missing: list[walk.Branch] = []
        one: walk.Branch | None = branch
        while one is not None and one.node < 0:
            missing.append(one)
            one = one.parent
        for one in reversed(missing):
            parent = None if one.parent is None else self.branches[one.parent.node]
            text = one.root if one.step is None else one.step.text
            one.node = len(self.branches)
            self.branches.append(Branch(parent, text, tree.class_name(one.value)))
            self.met.append(one)
            self.devices.append(set())
            if tree.is_module(one.value):
                self.named[id(one.value)] = one
        return branch.node

    def _leaf(self, leaf: walk.Leaf) -> None:
        known = self.seen.get(id(leaf.value))
        if known is not None:
            self._met_again(leaf, known)
            return
        entry = self._enter(leaf.branch, leaf.step, leaf.value, _role(leaf))
        branch, step = leaf.branch, leaf.step
        if branch is None or step is None:
            return
        if leaf.moves:
            self.registered.setdefault(branch.node, []).append(entry)
        if entry.device in ("numpy", "mlx"):
            return
        grad = gradient_below(leaf.value)
        if grad is not None and id(grad) not in self.seen:
            self.keep.append(grad)
            self._enter(branch, Step(Kind.GRAD, "grad", f"{step.text}.grad"), grad, Role.GRADIENT)
        self._consider(entry, leaf)

    def _consider(self, entry: Entry, leaf: walk.Leaf) -> None:
        """Note a tensor that may be astray, to be judged when everything is known."""
        branch = leaf.branch
        assert branch is not None
        if leaf.moves or stays(leaf):
            return
        if branch.about is not None and entry.role is Role.STATE:
            of = self.seen.get(id(branch.about))
            device = of.device if of is not None else measure_below(branch.about).device
            if device != entry.device and judge.is_somewhere(entry) and branch.optimizer is not None:
                self.strays.append(judge.off_parameter(entry, device, branch.optimizer.path()))
                return
        if branch.home is not None:
            self.left.append((entry, leaf))
        elif branch.optimizer is None:
            top = branch.top or branch
            batch = self.batches.get(id(top))
            if batch is None:
                batch = self.batches[id(top)] = (top.path(), [])
            batch[1].append(entry)

    def _enter(self, branch: walk.Branch | None, step: Step | None, value: Any, role: Role) -> Entry:
        facts = measure_below(value)
        nbytes, would_be, shares = self._count(facts)
        node = None if branch is None else self.branches[self._branch(branch)]
        entry = Entry(
            node, self.name if step is None else step.text, role, facts.device, facts.dtype, facts.shape, nbytes, would_be,
            shares, facts.requires_grad, facts.note,
        )  # fmt: skip
        self.entries.append(entry)
        self.seen[id(value)] = entry
        for key, size in facts.storages:
            first = self.storages.setdefault(key, entry)
            if first is not entry and role is not Role.GRADIENT:
                self._add(self.aliases, key, first, entry.shown, nbytes=size or facts.would_be)
        return entry

    def _count(self, facts: Facts) -> tuple[int, int, str | None]:
        nbytes, would_be, shares = 0, facts.would_be, None
        counted: set[Any] = set()
        for key, size in facts.storages:
            first = self.storages.get(key)
            if first is not None:
                shares, would_be = first.shown, 0
            elif key not in counted:
                counted.add(key)
                nbytes += size
        return nbytes, would_be, shares

    def _met_again(self, leaf: walk.Leaf, known: Entry) -> None:
        """A second path to a tensor."""
        branch, step = leaf.branch, leaf.step
        if branch is None or step is None:
            return
        if branch.optimizer is not None and branch.optimizer is not branch and known.role is not Role.STATE:
            return  # the parameters of an optimizer
        if not leaf.moves and branch.home is not None and known.role is Role.PARAMETER:
            return  # moves with the parameter, whose object stays the same
        node = self.branches[self._branch(branch)]
        self._add(self.tied, id(leaf.value), known, node.path(whole=False) + step.text)
        if not leaf.moves and branch.home is not None and known.role is Role.BUFFER:
            second = Entry(
                node, step.text, Role.PLAIN, known.device, known.dtype, known.shape, 0, 0, known.shown,
                known.requires_grad, known.note,
            )  # fmt: skip
            self.left.append((second, leaf))

    def _add(self, groups: dict[Any, list[Any]], key: Any, first: Entry, path: str, *, nbytes: int = 0) -> None:
        group = groups.setdefault(key, [first, nbytes, 1, []])
        group[2] += 1
        if len(group[3]) < _PATHS - 1:
            group[3].append(path)

    def _again(self, branch: walk.Branch) -> None:
        first = self.named.get(id(branch.value))
        up = set(map(id, branch.up()))
        if first is None or id(first) in up or not (branch.moves or branch.home is None):
            return  # of a module that has itself in it
        self.again.setdefault(id(branch.value), [self.branches[first.node].path(whole=False)]).append(branch.path())

    # -- after it

    def _judge(self) -> None:
        for number, entries in self.registered.items():
            home = self.met[number].home
            assert home is not None
            branch = self.branches[number]
            late = list(judge.late(judge.Registered(branch.title, branch.path(), home.path(), entries)))
            self.strays += late
            out = {id(stray.entry) for stray in late}  # they do not say where the module is
            self.devices[number] |= {e.device for e in entries if id(e) not in out and judge.is_placed(e)}
        for number in range(len(self.met) - 1, -1, -1):  # children before their parents
            branch = self.met[number]
            if branch.moves and branch.parent is not None and branch.parent.node >= 0:
                self.devices[branch.parent.node] |= self.devices[number]
        if any(branch.home is not None or branch.optimizer is not None for branch in self.met):
            for name, entries in self.batches.values():
                self.strays += judge.mixed(entries, name)
        else:
            self.strays += judge.mixed([entry for _, entries in self.batches.values() for entry in entries], self.name)
        self._judge_left()
        self.strays.sort(key=lambda stray: stray.latent)

    def _judge_left(self) -> None:
        """Real or latent, by the devices of the module that each hangs in."""
        verdicts: list[tuple[bool, Entry, walk.Leaf, tuple[str, ...]]] = []
        for entry, leaf in self.left:
            homes: tuple[str, ...] = ()
            anchor = None if leaf.branch is None else leaf.branch.anchor
            for branch in () if anchor is None else anchor.up():
                if branch.node >= 0 and self.devices[branch.node]:
                    homes = tuple(sorted(self.devices[branch.node]))
                    break
            real = bool(homes) and entry.device not in homes and judge.is_placed(entry)
            verdicts.append((not real, entry, leaf, homes))
        verdicts.sort(key=lambda verdict: verdict[0])
        steps = 0
        for told, (latent, entry, leaf, homes) in enumerate(verdicts):
            steps += 50 + (0 if leaf.branch is None or leaf.branch.node < 0 else self.branches[leaf.branch.node].depth)
            if steps > _STEPS:
                self.notes.append(f"{len(verdicts) - told} more tensors would be left behind than are listed.")
                break
            found = leaf.found()
            second = entry.shares is not None
            self.strays.append(Astray(entry, homes, latent, why_of(found), fix_of(found, second_name=second)))

    def inventory(self) -> Inventory:
        """What was found."""
        tied = [Shared(tuple(paths[:_PATHS]), len(paths), 0) for paths in self.again.values()]
        tied += list(_shared(self.tied.values()))
        return Inventory(
            name=self.name,
            title=tree.class_name(self.obj),
            strays=tuple(self.strays),
            entries=tuple(self.entries),
            devices=totals(self.entries, "device"),
            dtypes=totals(self.entries, "dtype"),
            tied=tuple(tied),
            aliases=tuple(_shared(self.aliases.values())),
            notes=tuple(self.notes),
        )


def _shared(groups: Iterable[list[Any]]) -> Iterator[Shared]:
    for first, nbytes, count, paths in groups:
        yield Shared((first.shown, *paths), count, nbytes or first.nbytes)


def totals(entries: Iterable[Entry], field: str) -> tuple[Total, ...]:
    """The sums by device or by dtype, the most bytes first."""
    sums: dict[str, list[int]] = {}
    for entry in entries:
        one = sums.setdefault(getattr(entry, field), [0, 0, 0])
        one[0] += 1
        one[1] += entry.nbytes
        one[2] += entry.would_be
    made = [Total(name, *numbers) for name, numbers in sums.items()]
    return tuple(sorted(made, key=lambda total: (-total.nbytes, -total.would_be, total.name)))


def _role(leaf: walk.Leaf) -> Role:
    branch, step = leaf.branch, leaf.step
    if branch is None or step is None:
        return Role.ITEM
    if leaf.moves:
        return Role.PARAMETER if step.kind is Kind.PARAMETER else Role.BUFFER
    if branch.about is not None:
        return Role.STATE
    if branch.home is not None:
        return Role.PLAIN
    return Role.ITEM
