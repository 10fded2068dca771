"""What can happen to a program on a device, as plain values: no tensor and no frame is kept alive by one."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Fallback:
    """One line of a program from which an operator went through the CPU, because the device has no kernel for it.

    Attributes:
        operator: As the device names it: "aten::linalg_lu_solve.out".
        file: The user's file whose line was running, or None where none was.
        line: That line, or None.
        count: How often.
        nbytes: How many bytes crossed for it altogether: operands to the host, results back.
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
    def from_json(cls, data: dict[str, object]) -> Fallback:
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


def added(first: tuple[Fallback, ...], second: tuple[Fallback, ...]) -> tuple[Fallback, ...]:
    """Those of two processes together, the most bytes first."""
    found: dict[object, Fallback] = {}
    for each in (*first, *second):
        before = found.get(each.site)
        found[each.site] = (
            each
            if before is None
            else replace(before, count=before.count + each.count, nbytes=before.nbytes + each.nbytes)
        )
    return tuple(sorted(found.values(), key=lambda each: (-each.nbytes, -each.count, each.operator)))


def without(later: tuple[Fallback, ...], earlier: tuple[Fallback, ...]) -> tuple[Fallback, ...]:
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
