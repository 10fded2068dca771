"""An inventory as a value: what resides where, by path. Plain facts; no tensor, module or frame stays alive through it.

`take` makes one of an object, `files` one of a checkpoint; `text` and `html` show it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wherry.units import format_bytes
from wherry.where.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class Role(enum.Enum):
    """What a tensor is to what holds it."""

    PARAMETER = "parameter"  # registered in a module
    BUFFER = "buffer"  # registered in a module
    GRADIENT = "gradient"  # what a parameter or another leaf of autograd has gathered
    PLAIN = "plain"  # in a module, and not registered: its `to` leaves it behind
    STATE = "state"  # what an optimizer remembers of a parameter
    ITEM = "item"  # in a batch, or in any other object
    SAVED = "saved"  # in a checkpoint file


_SHOWN_STEPS = 40  # a path of more steps is shown as its beginning and its end


class Branch:
    """Something on the way to a tensor: a module, a list, a dictionary.

    Attributes:
        parent: What it hangs in, or None.
        text: How it is written after that: ".layers", "[0]"; of a root its name.
        label: How a row shows it, where that is not the text.
        title: What its class is called.
        depth: How many steps it is from the root.
    """

    __slots__ = ("_head", "depth", "label", "parent", "text", "title")

    def __init__(self, parent: Branch | None, text: str, title: str, label: str | None = None) -> None:
        self.parent = parent
        self.text = text
        self.label = text if label is None else label
        self.title = title
        self.depth = 0 if parent is None else parent.depth + 1
        if parent is None:
            self._head = text
        else:
            self._head = parent._head + text if self.depth <= _SHOWN_STEPS else parent._head  # noqa: SLF001 - of its own kind

    def path(self, *, whole: bool = True) -> str:
        """How a person would write it. Not whole: a very long one as its beginning and its end."""
        if self.depth <= _SHOWN_STEPS:
            return self._head
        texts: list[str] = []
        branch: Branch | None = self
        while branch is not None and (whole or len(texts) < 4):
            texts.append(branch.text)
            branch = branch.parent
        return ("" if whole else self._head + "...") + "".join(reversed(texts))


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor, by the first path that leads to it.

    Attributes:
        branch: What holds it; None where it is a root itself.
        text: How it is written after that: ".weight", "['labels']".
        role: What it is to what holds it.
        device, dtype: As torch writes them; "numpy" and "mlx" for their arrays; "?" where they cannot be had.
        shape: Its sizes, or None where they cannot be had.
        nbytes: What its storages hold, if no entry before it counts them; so the sum over all entries is the total.
        would_be: What it would take where it holds nothing: on meta, or fake.
        shares: The path of the entry that counts its storage, or None.
        requires_grad: Whether autograd records it.
        note: What is odd about it: "fake", "uninitialized", "sparse_coo", the name of its class; or "".
        label: How a row shows it, where that is not the text.
    """

    branch: Branch | None
    text: str
    role: Role
    device: str
    dtype: str
    shape: tuple[int, ...] | None
    nbytes: int
    would_be: int = 0
    shares: str | None = None
    requires_grad: bool = False
    note: str = ""
    label: str | None = None

    @property
    def path(self) -> str:
        """How a person would write it: "model.layers[0].weight"."""
        return self.text if self.branch is None else self.branch.path() + self.text

    @property
    def shown(self) -> str:
        """The path, shortened in the middle where it has very many steps."""
        return self.text if self.branch is None else self.branch.path(whole=False) + self.text

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "path": self.shown,
            "kind": self.role.value,
            "device": self.device,
            "dtype": self.dtype,
            "shape": None if self.shape is None else list(self.shape),
            "nbytes": self.nbytes,
            "would_be": self.would_be,
            "shares": self.shares,
            "requires_grad": self.requires_grad,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Astray:
    """A tensor that is not where it should be, or will not be after the next `to`.

    Attributes:
        entry: The tensor.
        expected: The devices that it should be on one of; of a latent one, those of its module.
        latent: Whether it is in place now, and would be left behind by the next `to` of the module.
        why: Why it is one, a clause without its subject: "is a plain attribute of Net, ...".
        fix: What to write, a sentence.
    """

    entry: Entry
    expected: tuple[str, ...]
    latent: bool
    why: str
    fix: str

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "path": self.entry.shown,
            "device": self.entry.device,
            "expected": list(self.expected),
            "latent": self.latent,
            "why": self.why,
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True)
class Total:
    """What there is of a device or a dtype.

    Attributes:
        name: The device or the dtype.
        tensors: How many there are, each once.
        nbytes: What their storages hold, each once.
        would_be: What those that hold nothing would take.
    """

    name: str
    tensors: int
    nbytes: int
    would_be: int

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {"name": self.name, "tensors": self.tensors, "nbytes": self.nbytes, "would_be": self.would_be}


@dataclass(frozen=True, slots=True)
class Shared:
    """Paths that lead to the same: to one tensor or module (tied), or to several tensors over one storage (aliases).

    Attributes:
        paths: How a person would write them, the first as in the entries; at most 100.
        count: How many there are.
        nbytes: What the storage holds, or 0 for a module.
    """

    paths: tuple[str, ...]
    count: int
    nbytes: int

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {"paths": list(self.paths), "count": self.count, "nbytes": self.nbytes}


@dataclass(frozen=True)
class Inventory:
    """What resides where. `print` shows it, a notebook too; `to_json` gives plain values.

    Attributes:
        name: What it is of: "model", or a file.
        title: What that is: the name of a class, or of a format.
        strays: First those that are out of place, then the latent ones.
        entries: Every tensor once, in the order of the object.
        devices, dtypes: Totals, the most bytes first.
        tied: The same tensor by several paths.
        aliases: Several tensors over one storage.
        notes: What else a reader should know, as sentences.
    """

    name: str
    title: str
    strays: tuple[Astray, ...]
    entries: tuple[Entry, ...]
    devices: tuple[Total, ...]
    dtypes: tuple[Total, ...]
    tied: tuple[Shared, ...] = ()
    aliases: tuple[Shared, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tensors(self) -> int:
        """How many tensors there are, each once."""
        return len(self.entries)

    @property
    def nbytes(self) -> int:
        """What all storages hold, each counted once."""
        return sum(total.nbytes for total in self.devices)

    @property
    def would_be(self) -> int:
        """What those tensors would take that hold nothing now: on meta, or fake."""
        return sum(total.would_be for total in self.devices)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return self.tensors

    def __repr__(self) -> str:
        # Short, since containers of inventories are printed with it; print() and a notebook show all.
        where = ", ".join(f"{total.name} {format_bytes(total.nbytes)}" for total in self.devices)
        count = f"{self.tensors} tensor{'s' if self.tensors != 1 else ''}"
        return printable(f"<Inventory of {self.name}: {count}, {where or 'nothing'}>")

    def __str__(self) -> str:
        return self.text()

    def text(self, *, depth: int | None = None, all: bool = False, width: int = 100) -> str:  # noqa: A002 - the option's name
        """The inventory as plain text.

        Args:
            depth: How many steps below the root to show; None for as many as fit a screen.
            all: Show every entry, and fold nothing.
            width: How many columns there are.
        """
        from wherry.where.text import plain

        return plain(self, depth=depth, every=all, width=width)

    def html(self, *, depth: int | None = None, all: bool = False) -> str:  # noqa: A002 - the option's name
        """The inventory as a self-contained piece of HTML, with the options of `text`."""
        from wherry.where.html import render

        return render(self, depth=depth, every=all)

    def _repr_html_(self) -> str:
        return self.html()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from wherry.where.text import draw

        yield draw(self, width=options.max_width)

    def to_json(self) -> dict[str, object]:
        """The inventory as plain values. Part of the contract: see docs/where.md."""
        return {
            "name": self.name,
            "title": self.title,
            "tensors": self.tensors,
            "nbytes": self.nbytes,
            "would_be": self.would_be,
            "strays": [stray.to_json() for stray in self.strays],
            "devices": [total.to_json() for total in self.devices],
            "dtypes": [total.to_json() for total in self.dtypes],
            "tied": [shared.to_json() for shared in self.tied],
            "aliases": [shared.to_json() for shared in self.aliases],
            "notes": list(self.notes),
            "entries": [entry.to_json() for entry in self.entries],
        }
