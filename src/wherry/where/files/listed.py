"""What a file lists: tensors by their keys, with the storages behind them; and the inventory that this makes.

Keys such as "layers.0.attn.weight" make a tree of rows, while the path stays what a program would write to reach the tensor:
`checkpoint['layers.0.attn.weight']`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from wherry.tree import item_step
from wherry.where.inventory import Branch, Entry, Inventory, Role, Shared
from wherry.where.take import totals


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Bytes in a file.

    Attributes:
        key: What the file calls them.
        device: Where they were when they were saved.
        nbytes: How many there are.
        dtype: Of a storage with one, "float32"; else None.
    """

    key: str
    device: str
    nbytes: int
    dtype: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """A tensor in a file.

    Attributes:
        storages: What it stands on: one, or indices and values; none where no data was saved.
        dtype, shape: As torch writes them.
        layout: Where it begins and its strides: equal for tensors that are the same.
        would_be: What it would take, where it has no data: saved on meta.
        requires_grad: Whether autograd records it.
        note: What is odd about it: "sparse_coo", or "".
        attributes: What hangs in it, by name.
    """

    storages: tuple[Storage, ...]
    dtype: str
    shape: tuple[int, ...] | None
    layout: tuple[Any, ...] = ()
    would_be: int = 0
    requires_grad: bool = False
    note: str = ""
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Listed:
    """What is in a file.

    Attributes:
        path: The file.
        title: Its format.
        value: The tensors, in builtin containers.
        notes: What else a reader should know.
    """

    path: str
    title: str
    value: Any
    notes: tuple[str, ...] = ()


def inventory(listed: Listed) -> Inventory:
    """The inventory of what a file lists."""
    entries: list[Entry] = []
    seen: dict[int, Entry] = {}  # by the identity of the tensor, which the value keeps alive
    counted: dict[int, tuple[Entry, Saved]] = {}  # by the identity of the storage
    tied: dict[int, tuple[Entry, list[str]]] = {}
    aliases: dict[int, tuple[Entry, list[str]]] = {}
    for branch, text, label, saved in _leaves(listed.value):
        known = seen.get(id(saved))
        if known is not None:
            tied.setdefault(id(saved), (known, []))[1].append(_path(branch, text))
            continue
        nbytes, would_be, shares, same = 0, saved.would_be, None, None
        for storage in saved.storages:
            first = counted.get(id(storage))
            if first is None:
                nbytes += storage.nbytes
            else:
                shares = first[0].shown
                same = first if (first[1].layout, first[1].shape) == (saved.layout, saved.shape) else None
                groups = aliases if same is None else tied
                groups.setdefault(id(storage), (first[0], []))[1].append(_path(branch, text))
        device = saved.storages[-1].device if saved.storages else "meta"
        entry = Entry(
            branch, text, Role.SAVED, device, saved.dtype, saved.shape, nbytes, would_be, shares, saved.requires_grad,
            saved.note, label,
        )  # fmt: skip
        entries.append(entry)
        seen[id(saved)] = entry
        for storage in saved.storages:
            counted.setdefault(id(storage), (entry, saved))
    return Inventory(
        name=listed.path,
        title=listed.title,
        strays=(),
        entries=tuple(entries),
        devices=totals(entries, "device"),
        dtypes=totals(entries, "dtype"),
        tied=_shared(tied),
        aliases=_shared(aliases),
        notes=listed.notes,
    )


def _shared(groups: dict[int, tuple[Entry, list[str]]]) -> tuple[Shared, ...]:
    return tuple(Shared((first.shown, *paths[:99]), 1 + len(paths), first.nbytes) for first, paths in groups.values())


def _path(branch: Branch | None, text: str) -> str:
    return text if branch is None else branch.path(whole=False) + text


def _leaves(value: Any) -> Iterator[tuple[Branch | None, str, str | None, Saved]]:
    """Every tensor with what holds it. A stack, since a file may nest deeper than Python recurses."""
    if isinstance(value, Saved):
        yield None, "checkpoint", None, value
    root = Branch(None, "checkpoint", _title(value))
    seen: set[int] = {id(value)}
    stack: list[tuple[Branch, Iterator[tuple[str, str | None, Branch | None, Any]]]] = [(root, _parts(root, value))]
    while stack:
        branch, parts = stack[-1]
        for text, label, below, part in parts:
            if isinstance(part, Saved):
                yield below or branch, text, label, part
            if (isinstance(part, dict | list | tuple | set) or _has_attributes(part)) and id(part) not in seen:
                seen.add(id(part))
                inner = Branch(below or branch, text, _title(part), label)
                stack.append((inner, _parts(inner, part)))
                break
        else:
            stack.pop()


def _title(value: Any) -> str:
    return "Tensor" if isinstance(value, Saved) else type(value).__name__


def _has_attributes(value: Any) -> bool:
    return isinstance(value, Saved) and bool(value.attributes)


def _parts(owner: Branch, value: Any) -> Iterator[tuple[str, str | None, Branch | None, Any]]:
    """The parts of a container: how each is written and shown, and the branch that its key makes, if it has dots."""
    if isinstance(value, Saved):
        for name, part in value.attributes.items():
            yield f".{name}", None, None, part
        return
    if not isinstance(value, dict | list | tuple | set | frozenset):
        return  # a number or a text is a checkpoint, too
    if not isinstance(value, dict):
        for index, part in enumerate(value):
            yield f"[{index}]", None, None, part
        return
    made: dict[tuple[str, ...], Branch] = {}
    for key, part in value.items():
        text = item_step(key).text
        words = key.split(".") if type(key) is str and isinstance(part, Saved) else [""]
        if len(words) < 2 or len(words) > 30 or not all(words):
            yield text, None, None, part
            continue
        below = owner
        for count in range(1, len(words)):
            start = tuple(words[:count])
            if start not in made:
                made[start] = Branch(below, "", "", _label(words[count - 1], first=count == 1))
            below = made[start]
        yield text, _label(words[-1], first=False), below, part


def _label(word: str, *, first: bool) -> str:
    return f"[{word}]" if word.isdigit() else word if first else f".{word}"
