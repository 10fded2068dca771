"""How a run ended: the values, their JSON (`--result`), and the closing line.

`Result.to_json()` is a contract that other tools lean on. `status` is what a shell sees: the program's exit status, or
128 + n when signal n ended it, or None when that is not known (yet).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wherry import events
from wherry.events import Use
from wherry.units import format_bytes, format_duration


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted in a rehearsal.

    Attributes:
        ops: How many.
        h2d_nbytes, d2h_nbytes, d2d_nbytes: Bytes that crossed devices.
        fallbacks: Operators that went through the CPU, whose bytes are theirs alone.
        steps: How often an optimizer stepped.
        uses: What was called, if that was asked for (`Plan.surveys`).
    """

    ops: int = 0
    h2d_nbytes: int = 0
    d2h_nbytes: int = 0
    d2d_nbytes: int = 0
    fallbacks: tuple[Use, ...] = ()
    steps: int = 0
    uses: tuple[Use, ...] = ()

    @property
    def fallback_nbytes(self) -> int:
        """Bytes that crossed for operators without a kernel."""
        return sum(each.nbytes for each in self.fallbacks)

    @property
    def falling_back(self) -> tuple[str, ...]:
        """The operators that went through the CPU, each once, the most bytes first."""
        return tuple(dict.fromkeys(each.operator for each in self.fallbacks))

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.ops + other.ops,
            self.h2d_nbytes + other.h2d_nbytes,
            self.d2h_nbytes + other.d2h_nbytes,
            self.d2d_nbytes + other.d2d_nbytes,
            events.added(self.fallbacks, other.fallbacks),
            self.steps + other.steps,
            events.added(self.uses, other.uses),
        )

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.ops - other.ops,
            self.h2d_nbytes - other.h2d_nbytes,
            self.d2h_nbytes - other.d2h_nbytes,
            self.d2d_nbytes - other.d2d_nbytes,
            events.without(self.fallbacks, other.fallbacks),
            self.steps - other.steps,
            events.without(self.uses, other.uses),
        )

    def to_json(self) -> dict[str, object]:
        return {
            "ops": self.ops,
            "h2d_nbytes": self.h2d_nbytes,
            "d2h_nbytes": self.d2h_nbytes,
            "d2d_nbytes": self.d2d_nbytes,
            "fallbacks": [each.to_json() for each in self.fallbacks],
            "steps": self.steps,
            "uses": [each.to_json() for each in self.uses],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Counts:
        return cls(
            data["ops"],
            data["h2d_nbytes"],
            data["d2h_nbytes"],
            data["d2d_nbytes"],
            tuple(Use.from_json(each) for each in data["fallbacks"]),
            data["steps"],
            tuple(Use.from_json(each) for each in data.get("uses", ())),
        )


_UNEXPLAINED: dict[str, object] = {
    "op": None,
    "culprit": None,
    "operands": [],
    "why": None,
    "fix": None,
    "siblings": [],
}
"""What stands beside an error that is not about devices; the keys are a contract."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a program before its time.

    Attributes:
        type: The exception's name as Python prints it ("torch.OutOfMemoryError"), or a signal's ("SIGTERM").
        message: Its text.
        file: The file of the innermost line of the user's own code, or None when there is none.
        line: That line.
        explanation: What `wherry.explain_exception` said of a device error, as JSON (`Diagnosis.to_json`), or None.
    """

    type: str
    message: str
    file: str | None = None
    line: int | None = None
    explanation: dict[str, object] | None = None

    @property
    def where(self) -> str | None:
        """`train.py:12`, relative to the current folder when that is shorter."""
        if self.file is None:
            return None
        try:
            name = os.path.relpath(self.file) if self.file.startswith(os.getcwd() + os.sep) else self.file
        except OSError:  # the current folder is gone
            name = self.file
        return name if self.line is None else f"{name}:{self.line}"

    @property
    def headline(self) -> str:
        """`RuntimeError: the first line of the text`, or `exit status 3`."""
        if self.type == "SystemExit" and self.message.isdigit():
            return f"exit status {self.message}"
        first = self.message.strip().split("\n", 1)[0]
        return f"{self.type}: {first}" if first else self.type

    def to_json(self) -> dict[str, object]:
        return {
            "type": self.type,
            "message": self.message,
            "file": self.file,
            "line": self.line,
            **_UNEXPLAINED,
            **(self.explanation or {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, object]) -> Failure:
        file, line = data["file"], data["line"]
        explanation = {key: data[key] for key in _UNEXPLAINED if key in data}
        return cls(
            str(data["type"]),
            str(data["message"]),
            file if isinstance(file, str) else None,
            line if isinstance(line, int) else None,
            explanation if explanation.get("why") is not None else None,
        )


UNFINISHED = Failure(
    "Unfinished",
    "The program has not ended yet, or it ended in a way that left no time to write this file: "
    "os._exit(), exec, SIGKILL, or a crash of the interpreter.",
)
"""Stands in the result file while the program runs, so that the file is true whatever happens."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended.

    Attributes:
        device: The backend and the index asked for: "mps:0", "rocm:0", "cpu". torch calls ROCm's devices "cuda:0".
        virtual: Whether it was rehearsed.
        status: See above.
        error: What ended it before its time, or None.
        counts: All processes together. None where nothing is counted: on a real device.
        processes: How many processes were counted: those that imported torch.
        seconds: From the start of the program to its end.
    """

    device: str
    virtual: bool
    status: int | None
    error: Failure | None
    counts: Counts | None
    processes: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        counts = self.counts
        return {
            "device": self.device,
            "virtual": self.virtual,
            "status": self.status,
            "ops": None if counts is None else counts.ops,
            "error": None if self.error is None else self.error.to_json(),
            "ledger": {
                "h2d_nbytes": None if counts is None else counts.h2d_nbytes,
                "d2h_nbytes": None if counts is None else counts.d2h_nbytes,
                "d2d_nbytes": None if counts is None else counts.d2d_nbytes,
                "fallbacks": None if counts is None else [each.to_json() for each in counts.fallbacks],
                "steps": None if counts is None else counts.steps,
                **({"uses": [each.to_json() for each in counts.uses]} if counts is not None and counts.uses else {}),
                "processes": self.processes,
                "seconds": round(self.seconds, 3),
            },
        }

    def write(self, path: Path) -> None:
        """Write the JSON, whole or not at all."""
        # A reader that polls must never see half a file. Devices and pipes (`--result /dev/stderr`) cannot be replaced.
        text = json.dumps(self.to_json(), indent=2) + "\n"
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read what `write` wrote.

        Raises:
            OSError, ValueError, KeyError: it is not there, or is not such a file.
        """
        data = json.loads(path.read_text(encoding="utf-8"))
        ledger, error = data["ledger"], data["error"]
        counts = None
        if data["ops"] is not None:
            counts = Counts.from_json({"ops": data["ops"], **ledger})
        return cls(
            device=data["device"],
            virtual=data["virtual"],
            status=data["status"],
            error=None if error is None else Failure.from_json(error),
            counts=counts,
            processes=ledger["processes"],
            seconds=ledger["seconds"],
        )

    def closing_parts(self) -> tuple[str, ...]:
        """What the closing line of a run says: what happened and where, why it failed, what it moved, how long it took."""
        torch_came = self.counts is None or self.processes > 0
        kind = "virtual" if self.virtual else "real"
        parts = [f"{self._verb()} on {self.device} ({kind})" if torch_came else f"{self._verb()} without torch"]
        if self.error is not None and self.error.type != "SystemExit":
            where = f" at {self.error.where}" if self.error.where else ""
            parts.append(f"{self.error.type}{where}")
        elif self.status:
            parts.append(f"exit status {self.status}")
        if self.counts is not None and torch_came:
            parts += [_ops(self.counts), _moved(self.counts)]
            if self.counts.fallbacks:
                parts.append(fell_back(self.counts))
            if self.processes > 1:
                parts.append(f"{self.processes} processes")
        parts.append(format_duration(self.seconds))
        return tuple(parts)

    def _verb(self) -> str:
        return "ran" if self.error is None and not self.status else "failed"

    def but(self, *, status: int | None, error: Failure | None) -> Result:
        """The same run with another end."""
        return replace(self, status=status, error=error)


def _ops(counts: Counts) -> str:
    return f"{counts.ops:,} {'op' if counts.ops == 1 else 'ops'}"


def fell_back(counts: Counts) -> str:
    """`3 operators fall back, 1.2 GiB across per step`; of the whole run where no optimizer stepped."""
    number = len(counts.falling_back)
    nbytes = counts.fallback_nbytes // max(1, counts.steps)
    each = " per step" if counts.steps > 1 else ""
    return f"{number} {'operator falls' if number == 1 else 'operators fall'} back, {format_bytes(nbytes)} across{each}"


def _moved(counts: Counts) -> str:
    text = f"{format_bytes(counts.h2d_nbytes)} to the device, {format_bytes(counts.d2h_nbytes)} back"
    if counts.d2d_nbytes:
        text += f", {format_bytes(counts.d2d_nbytes)} between devices"
    return text
