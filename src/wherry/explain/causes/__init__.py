"""Why a tensor is not where the rest is: one file is one cause, and the folder is the list of them.

A file binds `CAUSE`. Its docstring is the long form: what happens, why, the fix, sources. Its examples are small programs
that fail under a rehearsal, with the answer beside them; tests/explain/test_causes.py runs them all.

`of(case)` asks them in the order of their `rank`, the most particular first; the last one always answers.
"""

from __future__ import annotations

import sys
from functools import lru_cache

from wherry import roster
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause

__all__ = ["Advice", "Cause", "every", "of"]


@lru_cache(maxsize=1)
def every() -> tuple[Cause, ...]:
    """All causes, in the order they are asked."""
    found = roster.read(sys.modules[__name__], binding="CAUSE", kind=Cause, name=lambda cause: cause.name)
    return tuple(sorted(found.entries, key=lambda cause: (cause.rank, cause.name)))


def of(case: Case) -> tuple[Cause, Advice]:
    """The cause of a case, and what it has to say.

    Raises:
        LookupError: none applies, which the last one makes impossible.
    """
    for cause in every():
        advice = cause.recognise(case)
        if advice is not None:
            return cause, advice
    raise LookupError("no cause answers")
