"""An inventory as rows: the tree of its paths, folded until it fits a screen.

Like siblings that are alike in everything, as the layers of a transformer are, become one row: `.layers[0..11]  x 12`. A branch
with one part is one row with it. Then the depth is chosen: as deep as the rows are few enough.

Rows know nothing of how they are shown; `text` and `html` do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wherry.where.inventory import Branch, Entry, Inventory

SCREEN = 36  # rows that fit a terminal beside the rest
MOST = 200  # rows where a depth was asked for that does not fit; all=True shows everything


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the tree.

    Attributes:
        level: How far it is indented.
        text: How it is written after the row that it is below of: ".layers[0..11]".
        title: The class of a branch, or the role of a tensor.
        times: How many alike it stands for.
        tensors: How many tensors it stands for; of a tensor, `times`.
        shape, dtype, device: What is to be shown of them: one value, or "2 dtypes".
        nbytes, would_be: Of everything that it stands for.
        entry: The tensor, where it is one.
        note: What else to say: "shared", "requires grad" ...
        closed: Whether there is more below that is not shown.
    """

    level: int
    text: str
    title: str
    times: int
    tensors: int
    shape: str
    dtype: str
    device: str
    nbytes: int
    would_be: int
    entry: Entry | None
    note: str
    closed: bool = False


@dataclass(slots=True, eq=False)
class _Node:
    branch: Branch | None
    text: str
    level: int = 0
    parts: list[Any] = field(default_factory=list[Any])  # of nodes and entries, in order
    signature: int = 0
    tensors: int = 0
    nbytes: int = 0
    would_be: int = 0
    dtypes: dict[str, None] = field(default_factory=dict[str, None])
    devices: dict[str, None] = field(default_factory=dict[str, None])


def rows(inventory: Inventory, *, depth: int | None = None, every: bool = False) -> tuple[list[Row], int]:
    """The rows of an inventory, and how many are not shown.

    Args:
        inventory: Any.
        depth: How many steps below the root to go; None for as many as fit a screen.
        every: Show everything, and fold nothing.
    """
    root = _tree(inventory)
    if every:
        return _flat(root, deepest=None, fold=False, most=None)
    if depth is not None:
        return _flat(root, deepest=depth, fold=True, most=MOST)
    best = _flat(root, deepest=1, fold=True, most=SCREEN)
    for deepest in range(2, 12):
        made, left = _flat(root, deepest=deepest, fold=True, most=SCREEN + 1)
        if left or len(made) > SCREEN:
            break
        best = (made, left)
        if not any(row.closed for row in made):
            break
    return best


def _tree(inventory: Inventory) -> _Node:
    """The nodes by their parents, with sums and signatures from below."""
    root = _Node(None, "")
    nodes: dict[int, _Node] = {}
    order: list[_Node] = []

    def node_of(branch: Branch) -> _Node:
        missing: list[Branch] = []
        one: Branch | None = branch
        while one is not None and id(one) not in nodes:
            missing.append(one)
            one = one.parent
        parent = root if one is None else nodes[id(one)]
        for new in reversed(missing):
            node = nodes[id(new)] = _Node(new, new.label)
            parent.parts.append(node)
            order.append(node)
            parent = node
        return nodes[id(branch)]

    for entry in inventory.entries:
        (root if entry.branch is None else node_of(entry.branch)).parts.append(entry)
    for node in (*reversed(order), root):
        _gather_states(node)
        _sum(node)
    return root


def _gather_states(node: _Node) -> None:
    """The states of an optimizer, one for each parameter, below one row."""
    states = [part for part in node.parts if not isinstance(part, Entry) and part.text.startswith(".state[")]
    if len(states) < 7:
        return
    gathered = _Node(None, ".state", parts=states)
    _sum(gathered)
    gone = set(map(id, states))
    node.parts = [*(part for part in node.parts if id(part) not in gone), gathered]
    for part in states:
        part.text = part.text.removeprefix(".state")


def _sum(node: _Node) -> None:
    alike: list[Any] = [None if node.branch is None else node.branch.title]
    for part in node.parts:
        if isinstance(part, Entry):
            node.tensors += 1
            node.dtypes[part.dtype] = None
            node.devices[part.device] = None
            alike.append((_text(part), part.role, part.dtype, part.device, part.shape, part.nbytes, part.note))
        else:
            node.tensors += part.tensors
            node.dtypes.update(part.dtypes)
            node.devices.update(part.devices)
            alike.append((part.text, part.signature))
        node.nbytes += part.nbytes
        node.would_be += part.would_be
    node.signature = hash(tuple(alike))


def _flat(root: _Node, *, deepest: int | None, fold: bool, most: int | None) -> tuple[list[Row], int]:
    """The rows down to a depth. A stack, since objects may be nested deeper than Python recurses."""
    made: list[Row] = []
    left = 0
    stack: list[tuple[Any, str, int, int]] = [
        (first, text, times, 0) for first, text, times in reversed(_groups(root.parts, fold=fold))
    ]
    while stack:
        part, text, times, level = stack.pop()
        if most is not None and len(made) >= most:
            left += 1
            continue
        if isinstance(part, Entry):
            made.append(_of_entry(part, text, times, level))
            continue
        while len(part.parts) == 1 and not isinstance(part.parts[0], Entry) and fold and level > 0:
            (inner,) = part.parts
            text, part = _joined(text, inner.text), inner
        if fold and len(part.parts) == 1 and times == 1 and level > 0:
            made.append(_of_entry(part.parts[0], _joined(text, _text(part.parts[0])), 1, level))
            continue
        closed = deepest is not None and level >= deepest
        made.append(_of_node(part, text, times, level, closed=closed))
        if not closed:
            stack += [
                (first, name, count, level + 1) for first, name, count in reversed(_groups(part.parts, fold=fold))
            ]
    return made, left


def _joined(text: str, further: str) -> str:
    """The texts of two steps in one row: the keys of a state dict are words of their own."""
    if len(text) > 200:
        return text
    return text + further if further[:1] in "[.{" else f"{text} {further}"


def _text(part: Any) -> str:
    return part.label if isinstance(part, Entry) and part.label is not None else part.text


def _groups(parts: Sequence[Any], *, fold: bool) -> list[tuple[Any, str, int]]:
    """Runs of parts that are alike but for their index: the first, the text for all, how many."""
    made: list[tuple[Any, str, int]] = []
    start = 0
    while start < len(parts):
        end = start + 1
        if fold:
            while end < len(parts) and _alike(parts[start], parts[end]):
                end += 1
        text = _text(parts[start])
        if end - start > 1:
            before, after = text.rpartition("[")[0], _text(parts[end - 1]).rpartition("[")[2]
            text = f"{before}[{text.rpartition('[')[2].rstrip(']')}..{after}"
            made.append((parts[start], text, end - start))
        else:
            made.append((parts[start], text, 1))
        start = end
    return made


def _alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or not (_indexed(_text(one)) and _indexed(_text(other))):
        return False
    if _text(one).rpartition("[")[0] != _text(other).rpartition("[")[0]:
        return False
    if isinstance(one, Entry):
        return (one.role, one.dtype, one.device, one.shape, one.nbytes, one.note) == (
            other.role, other.dtype, other.device, other.shape, other.nbytes, other.note,
        )  # fmt: skip
    return one.signature == other.signature


def _indexed(text: str) -> bool:
    return text.endswith("]") and text.rpartition("[")[2][:-1].isdigit()


def _of_entry(entry: Entry, text: str, times: int, level: int) -> Row:
    notes = [entry.note] if entry.note else []
    if entry.shares is not None:
        notes.append("shared")
    shape = "?" if entry.shape is None else "x".join(map(str, entry.shape)) or "0-dim"
    return Row(
        level, text, entry.role.value, times, times, shape, entry.dtype, entry.device, times * entry.nbytes,
        times * entry.would_be, entry, ", ".join(notes),
    )  # fmt: skip


def _of_node(node: _Node, text: str, times: int, level: int, *, closed: bool) -> Row:
    dtypes = next(iter(node.dtypes)) if len(node.dtypes) == 1 else f"{len(node.dtypes)} dtypes"
    named = sorted(node.devices)
    devices = ", ".join(named) if len(named) < 3 else f"{len(named)} devices"
    tensors = times * node.tensors
    shape = f"{tensors:,} tensor{'s' if tensors != 1 else ''}"
    return Row(
        level, text, "" if node.branch is None else node.branch.title, times, tensors, shape, dtypes, devices,
        times * node.nbytes, times * node.would_be, None, "", closed,
    )  # fmt: skip
