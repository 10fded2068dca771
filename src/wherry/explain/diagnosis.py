"""What an explanation says: plain values, no tensors, no frames, ready for JSON and for text."""

from __future__ import annotations

from dataclasses import dataclass

from wherry.explain.source import Site


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor or a generator that took part in the call that failed.

    Attributes:
        name: How the program writes it, or None for a temporary.
        argument: What the op calls it, or None.
        device: "cuda:0", "cpu"; None where it is not known.
        shape: Its sizes, or None.
        dtype: "float32", or None.
    """

    name: str | None
    argument: str | None
    device: str | None
    shape: tuple[int, ...] | None
    dtype: str | None

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "argument": self.argument,
            "device": self.device,
            "shape": None if self.shape is None else list(self.shape),
            "dtype": self.dtype,
        }


@dataclass(frozen=True, slots=True)
class Culprit:
    """The one that did not get moved.

    Attributes:
        name: How the user writes it: `self.pe`, `batch['labels']`.
        device: Where it is.
        expected_device: Where it should be.
        shape, dtype: As for `Operand`.
        origin: The line it comes from, or None.
        kind: The slug of the cause: "plain-attribute".
        held_by: What holds it, where that is more than the name says: `self._cos` for `cos`. Or None.
    """

    name: str
    device: str | None
    expected_device: str | None
    shape: tuple[int, ...] | None
    dtype: str | None
    origin: Site | None
    kind: str
    held_by: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "device": self.device,
            "expected_device": self.expected_device,
            "shape": None if self.shape is None else list(self.shape),
            "dtype": self.dtype,
            "origin": None if self.origin is None else self.origin.to_json(),
            "kind": self.kind,
            "held_by": self.held_by,
        }


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A line of the program.

    Attributes:
        site: Where it stands.
        text: The line, without its end.
        marks: Parts of it to underline: first column, last column (exclusive), and a word to put below or "".
    """

    site: Site
    text: str
    marks: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a device error happened, and what to do about it.

    Attributes:
        error: The exception's type and the first line of its text.
        site: The user's line that failed, or None where a log does not tell.
        op: The op: "aten::add.Tensor"; None where it is not known.
        culprit: The one that did not get moved, or None where it cannot be told.
        operands: What took part.
        why: Why it is where it is, in a sentence or two.
        fix: What to do, with code of this program where possible.
        siblings: What would fail next: the names of others beside it.
        failed, made: The lines to show.
    """

    error: str
    site: Site | None
    op: str | None
    culprit: Culprit | None
    operands: tuple[Operand, ...]
    why: str
    fix: str
    siblings: tuple[str, ...] = ()
    failed: Excerpt | None = None
    made: Excerpt | None = None

    def to_json(self) -> dict[str, object]:
        """The part of `wherry run --result` that stands under "error", beside the exception's own."""
        return {
            "op": self.op,
            "culprit": None if self.culprit is None else self.culprit.to_json(),
            "operands": [operand.to_json() for operand in self.operands],
            "why": self.why,
            "fix": self.fix,
            "siblings": list(self.siblings),
        }

    def __str__(self) -> str:
        from wherry.explain.text import plain

        return plain(self)
