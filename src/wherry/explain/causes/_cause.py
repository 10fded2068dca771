"""What a cause is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wherry.explain.case import Case


@dataclass(frozen=True, slots=True)
class Advice:
    """What a cause has to say of a case.

    Attributes:
        why: One or two sentences: why it is where it is.
        fix: One sentence, with code of this program where possible.
    """

    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class Example:
    """A small program that fails for the cause.

    Attributes:
        program: Its text, indented as here; torch is imported and DEVICE is set before it.
        culprit: The name of the stray.
        origin: A piece of text of the line it comes from.
        device: What to rehearse.
        count: How many devices.
        profile: Which model of device; None is the usual one.
    """

    program: str
    culprit: str
    origin: str
    device: str = "cuda"
    count: int = 1
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause.

    Attributes:
        name: Its slug, `culprit.kind` in the JSON.
        rank: The smaller, the earlier it is asked.
        recognise: The advice for a case, or None where it does not apply.
        examples: Programs that fail for it.
    """

    name: str
    rank: int
    recognise: Callable[[Case], Advice | None]
    examples: tuple[Example, ...] = ()
