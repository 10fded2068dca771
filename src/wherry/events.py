"""What can happen to a program on a device, as plain values: no tensor and no frame is kept alive by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import FrameType


@dataclass(frozen=True, slots=True)
class Use:
    """How often one line of a program called an operator. A fallback is one, for which the device has no kernel.

    Attributes:
        operator: The overload with its namespace; of a fallback as the device names it: "aten::linalg_lu_solve.out".
        file: The user's file whose line was running, or None where none was.
        line: That line, or None.
        count: How often.
        nbytes: Bytes that cross for a fallback altogether: operands to the host, results back.
    """

    operator: str
    file: str | None
    line: int | None
    count: int
    nbytes: int

    @property
    def site(self) -> tuple[str, str | None, int | None]:
        """What tells one from another."""
        return (self.operator, self.file, self.line)

    def to_json(self) -> dict[str, object]:
        return {
            "operator": self.operator,
            "file": self.file,
            "line": self.line,
            "count": self.count,
            "nbytes": self.nbytes,
        }

    @classmethod
    def from_json(cls, data: dict[str, object]) -> Use:
        operator, file, line = data["operator"], data["file"], data["line"]
        count, nbytes = data["count"], data["nbytes"]
        assert isinstance(count, int)
        assert isinstance(nbytes, int)
        return cls(
            str(operator),
            file if isinstance(file, str) else None,
            line if isinstance(line, int) else None,
            count,
            nbytes,
        )


class Tally:
    """Uses, counted as they happen."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str | None, int | None], list[int]] = {}

    def add(self, operator: str, nbytes: int, frame: FrameType | None) -> None:
        """Count one, at the line of the user's program that is running.

        Args:
            operator: With its namespace.
            nbytes: That cross, or would.
            frame: The user's, or None.
        """
        site = (operator, None, None) if frame is None else (operator, frame.f_code.co_filename, frame.f_lineno)
        count = self._counts.setdefault(site, [0, 0])
        count[0] += 1
        count[1] += nbytes

    def uses(self) -> tuple[Use, ...]:
        """All so far, the most bytes first."""
        # A list first: other threads go on counting.
        return added((), tuple(Use(*site, count, nbytes) for site, (count, nbytes) in list(self._counts.items())))


def added(first: tuple[Use, ...], second: tuple[Use, ...]) -> tuple[Use, ...]:
    """Those of two processes together, the most bytes first."""
    found: dict[object, Use] = {}
    for each in (*first, *second):
        before = found.get(each.site)
        found[each.site] = (
            each
            if before is None
            else replace(before, count=before.count + each.count, nbytes=before.nbytes + each.nbytes)
        )
    return tuple(sorted(found.values(), key=lambda each: (-each.nbytes, -each.count, each.operator)))


def without(later: tuple[Use, ...], earlier: tuple[Use, ...]) -> tuple[Use, ...]:
    """What came since `earlier`, which is a part of `later`."""
    before = {each.site: each for each in earlier}
    found = []
    for each in later:
        known = before.get(each.site)
        if known is None:
            found.append(each)
        elif each.count > known.count:
            found.append(replace(each, count=each.count - known.count, nbytes=each.nbytes - known.nbytes))
    return tuple(found)
