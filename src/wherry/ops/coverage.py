"""What a backend has of the operators one asks about, or of those that a program used: the catalog's answers, put together.

`look_up(["linalg.svd*"])` finds operators as users write them, `entry("ctc_loss", backend)` answers for all overloads of one,
`of_uses(uses, backend)` for what a program called, with the lines that did.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from wherry.backends import Backend
from wherry.errors import UnknownOperator
from wherry.events import Use
from wherry.ops import catalog, instead, reach
from wherry.ops.catalog import LACKING, Evidence, Standing, Support
from wherry.ops.instead import Instead


@dataclass(frozen=True, slots=True)
class Entry:
    """How an operator stands on a backend.

    Attributes:
        operator: Its name without an overload: "linalg_svd".
        backend: Which backend.
        standing: That of its overloads; of one made of others, that of what every call of it needs.
        overloads: Each of them.
        calls: What it calls that the backend lacks, forward.
        calls_backward: The same for its gradient.
        always: Whether every call needs one of `calls`; else it depends on the arguments.
        refuses: Dtypes that its kernel refuses and the CPU's takes, with its words, where that is known.
        limited: Whether its kernel refuses some arguments besides.
        instead: What to write in its place, if there is anything that it lacks.
    """

    operator: str
    backend: str
    standing: Standing
    overloads: tuple[Support, ...]
    calls: tuple[Support, ...]
    calls_backward: tuple[Support, ...]
    always: bool
    refuses: tuple[tuple[str, str], ...]
    limited: bool
    instead: tuple[Instead, ...]

    @property
    def others(self) -> tuple[Support, ...]:
        """The overloads that stand worse than the operator."""
        return tuple(
            each
            for each in self.overloads
            if each.standing in (*LACKING, Standing.UNKNOWN) and each.standing is not self.standing
        )

    def to_json(self) -> dict[str, object]:
        return {
            "operator": f"aten::{self.operator}",
            "backend": self.backend,
            "standing": self.standing.value,
            "overloads": [each.to_json() for each in self.overloads],
            "calls": [each.to_json() for each in self.calls],
            "calls_backward": [each.to_json() for each in self.calls_backward],
            "always": self.always,
            "refuses": dict(self.refuses),
            "limited": self.limited,
            "instead": [each.to_json() for each in self.instead],
        }


@dataclass(frozen=True, slots=True)
class Lack:
    """An operator that a program used and a backend lacks.

    Attributes:
        support: How it stands.
        uses: The lines that called it, the most calls first.
        instead: What to write in its place.
    """

    support: Support
    uses: tuple[Use, ...]
    instead: tuple[Instead, ...]

    @property
    def count(self) -> int:
        return sum(use.count for use in self.uses)

    @property
    def nbytes(self) -> int:
        """Bytes that would cross if it went through the CPU."""
        return sum(use.nbytes for use in self.uses)

    def to_json(self) -> dict[str, object]:
        return {
            **self.support.to_json(),
            "count": self.count,
            "nbytes": self.nbytes,
            "uses": [use.to_json() for use in self.uses],
            "instead": [each.to_json() for each in self.instead],
        }


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a backend has of the operators that a program used.

    Attributes:
        backend: Which backend.
        operators: How many different overloads were used.
        calls: How often, all together.
        lacks: Those without a kernel: what raises first, then what goes through the CPU; gradients after the rest, else by
            the number of calls.
        unknown: Overloads of other libraries that nobody here knows about.
        limited: Operators whose kernels do not take every size or dtype, as is known; whether they took these is not.
    """

    backend: str
    operators: int
    calls: int
    lacks: tuple[Lack, ...]
    unknown: tuple[str, ...]
    limited: tuple[str, ...]

    @property
    def runs(self) -> bool:
        """Whether nothing that was used raises."""
        return not any(lack.support.standing is Standing.MISSING for lack in self.lacks)

    def to_json(self) -> dict[str, object]:
        return {
            "backend": self.backend,
            "operators": self.operators,
            "calls": self.calls,
            "lacks": [lack.to_json() for lack in self.lacks],
            "unknown": list(self.unknown),
            "limited": list(self.limited),
        }


# -- by name


def look_up(names: Sequence[str]) -> tuple[str, ...]:
    """Operators, without overloads, by the names that users write.

    >>> look_up(["torch.linalg.svd", "F.ctc_loss", "nn.AdaptiveAvgPool3d", "aten::take.out"])
    ('linalg_svd', 'ctc_loss', 'adaptive_avg_pool3d', 'take')

    Args:
        names: "linalg.svd", "torch.nn.functional.ctc_loss", "aten::take", "nn.CTCLoss", or with wildcards: "special_*".

    Raises:
        UnknownOperator: There is none of that name, or none that matches.
    """
    found: dict[str, None] = {}
    for name in names:
        found.update(dict.fromkeys(_matching(name)))
    return tuple(found)


_PREFIXES = ("torch.nn.functional.", "nn.functional.", "torch.ops.aten.", "torch.nn.", "torch.Tensor.")
_PREFIXES += ("torch.", "aten::", "aten.", "F.", "nn.", "Tensor.")


def _matching(name: str) -> list[str]:
    short = name.strip()
    for prefix in _PREFIXES:
        if short.startswith(prefix):
            short = short.removeprefix(prefix)
            break
    known = operators()
    underscored = short.replace(".", "_")
    if any(wild in short for wild in "*?["):
        matches = [operator for operator in known if fnmatch.fnmatchcase(operator, underscored)]
        if not matches:
            raise UnknownOperator(name, [])
        return matches
    base = short.partition(".")[0]  # "take.out", or "linalg.svd"
    snake, last = _snake(short), short.rpartition(".")[2]
    for candidate in (underscored, base, snake, f"_{underscored}", re.sub(r"\dd$", "", snake), last):
        if candidate in known:
            return [candidate]
    near = difflib.get_close_matches(_snake(underscored), known, n=3, cutoff=0.75)
    raise UnknownOperator(name, near)


def _snake(name: str) -> str:
    """A module's class as its function is called: "CTCLoss" is ctc_loss, "AdaptiveAvgPool3d" adaptive_avg_pool3d."""
    if not name[:1].isupper():
        return name
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def operators() -> dict[str, tuple[str, ...]]:
    """Every operator that has an entry -> its overloads, both without their namespace."""
    found: dict[str, list[str]] = {}
    for overload in catalog.overloads():
        found.setdefault(overload.partition(".")[0], []).append(overload)
    return {operator: tuple(overloads) for operator, overloads in found.items()}


def entry(operator: str, backend: Backend) -> Entry:
    """How an operator stands on a backend.

    Args:
        operator: Its name, from `look_up`.
        backend: Which backend.
    """
    overloads = tuple(catalog.support(overload, backend) for overload in operators()[operator])
    standing = _standing(overloads)
    reached = reach.lacking(operator, backend)
    # What one is made of does not matter where it is caught as a whole.
    forward = () if standing is Standing.FALLS_BACK else _by_gravity(reached.forward)
    backward = _by_gravity(reached.backward)
    if standing is Standing.COMPOSITE and forward and reached.always:
        standing = forward[-1].standing  # the mildest: other calls of it may do worse
    refuses = next((found for each in overloads if (found := catalog.limits(each.operator, backend))), {})
    limited = catalog.is_limited(operator, backend)
    lacks = standing in LACKING or forward or backward or limited
    known = instead.of(operator) if lacks else ()
    return Entry(
        operator,
        backend.name,
        standing,
        overloads,
        forward,
        backward,
        reached.always,
        tuple(refuses.items()),
        limited,
        known,
    )


def _standing(overloads: Iterable[Support]) -> Standing:
    """That of the overloads which programs call: not those with `out=`, where there are others; the worst of them."""
    counted = [each for each in overloads if each.standing is not Standing.FOREIGN]
    plain = [each for each in counted if not each.operator.endswith("out")] or counted
    order = (Standing.MISSING, Standing.FALLS_BACK, Standing.COMPOSITE, Standing.KERNEL)
    if not plain:
        return Standing.FOREIGN
    if any(each.standing is Standing.KERNEL for each in plain) and not any(e.standing in LACKING for e in plain):
        return Standing.KERNEL
    return next((standing for standing in order if any(e.standing is standing for e in plain)), Standing.UNKNOWN)


def _by_gravity(lacking: Iterable[Support]) -> tuple[Support, ...]:
    """Each that a device would name once, what raises first."""
    named = {each.named: each for each in lacking}
    return tuple(sorted(named.values(), key=lambda each: LACKING.index(each.standing)))


# -- by use


def of_uses(uses: Iterable[Use], backend: Backend) -> Coverage:
    """What a backend has of what a program used.

    Args:
        uses: From a run that was surveyed.
        backend: Which backend.
    """
    by_operator: dict[str, list[Use]] = {}
    for use in uses:
        by_operator.setdefault(use.operator, []).append(use)
    lacks, unknown, limited = [], [], []
    for operator, calls in by_operator.items():
        support = catalog.support(operator, backend)
        if support.standing in LACKING:
            calls.sort(key=lambda use: -use.count)
            lacks.append(Lack(support, tuple(calls), instead.of(operator.removeprefix("aten::").partition(".")[0])))
        elif support.evidence is Evidence.NONE:
            unknown.append(operator)
        elif catalog.is_limited(operator.removeprefix("aten::").partition(".")[0], backend):
            limited.append(operator)
    lacks.sort(key=lambda it: (LACKING.index(it.support.standing), "backward" in it.support.operator, -it.count))
    total = sum(use.count for calls in by_operator.values() for use in calls)
    others = tuple(sorted(unknown)), tuple(sorted(limited))
    return Coverage(backend.name, len(by_operator), total, tuple(lacks), *others)
