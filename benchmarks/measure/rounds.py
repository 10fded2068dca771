"""Paired rounds: candidates measured in turn, compared within each round.

A shared machine speeds up and slows down while a benchmark runs, often by more than what the benchmark asks about. So
each candidate is measured once per round, every second round in reverse order, and two candidates are compared round by
round: a reported ratio is the median of the rounds' ratios, and its spread the quartiles of the same.

Why not pytest-benchmark or pyperf: both finish one candidate before they begin the next and compare medians afterwards,
so that a drift of the machine becomes a difference between the candidates.

Goes in: names and functions that return the seconds of one sample. Comes out: `Rounds`, from which a script takes rows
and targets; `report` prints them, writes `--json FILE` and, under `--check`, exits 1 for a missed target.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

GOES = 4
# Of the processor, not of the wall: what is measured neither waits nor sleeps, but other programs take their turns.
CLOCK = time.process_time


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The median over all rounds, and the quartiles that half of the rounds lie between."""

    median: float
    low: float
    high: float

    def __mul__(self, factor: float) -> Quartiles:
        return Quartiles(self.median * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{_figures(self.median)} ({_figures(self.low)}..{_figures(self.high)})"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Seconds of every candidate in every round: `samples[name][round]`."""

    samples: Mapping[str, tuple[float, ...]]

    def seconds(self, name: str) -> Quartiles:
        return _quartiles(self.samples[name])

    def ratio(self, name: str, to: str) -> Quartiles:
        return _quartiles([a / b for a, b in zip(self.samples[name], self.samples[to], strict=True)])

    def overhead_ratio(self, name: str, to: str, over: str) -> Quartiles:
        """What `name` costs more than `over`, in units of what `to` costs more than `over`."""
        columns = zip(self.samples[name], self.samples[to], self.samples[over], strict=True)
        return _quartiles([(a - base) / (b - base) for a, b, base in columns])


@dataclass(frozen=True, slots=True)
class Target:
    """A promise: `value` stays at or below `limit`."""

    what: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        return self.value <= self.limit


def _quartiles(values: Sequence[float]) -> Quartiles:
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Quartiles(median, low, high)


def play(candidates: Mapping[str, Callable[[], float]], rounds: int) -> Rounds:
    """Measure every candidate once per round, after one round that does not count."""
    names = list(candidates)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        candidates[name]()
    for number in range(rounds):
        gc.collect()  # once a round: with torch's many objects it takes longer than most samples
        for name in names if number % 2 == 0 else reversed(names):
            samples[name].append(candidates[name]())
    return Rounds({name: tuple(values) for name, values in samples.items()})


def clock(function: Callable[[], object], count: int) -> float:
    """Seconds of one call of `function`: the mean of `count` calls, in the least disturbed of a few goes at it.

    Garbage is not collected meanwhile. Interruptions only ever add, so within a sample the least is the truest; over
    rounds it is the median, because there the comparison is what is asked about.
    """
    return least(timeit.Timer(function, timer=CLOCK), count)


def least(timer: timeit.Timer, count: int) -> float:
    """The same of a timer that is there already."""
    return min(timer.repeat(GOES, count)) / count


def parser(description: str, rounds: int, parts: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The options all benchmarks share; `--only PART` where a question has several parts."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--rounds", type=int, default=rounds, help="(default: %(default)s)")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    options.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    if parts:
        options.add_argument("--only", choices=parts, metavar="PART", help=f"one of {', '.join(map(repr, parts))}")
    options.add_argument("--elsewhere", action="store_true", help=argparse.SUPPRESS)  # see elsewhere.py
    return options


def environment() -> dict[str, object]:
    """What a reader needs to judge a time. The load says how busy the machine was with other work."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def report(
    question: str,
    conditions: str,
    rows: Sequence[Mapping[str, object]],
    targets: Sequence[Target],
    args: argparse.Namespace,
) -> None:
    """Print the answer, write it to `--json FILE`, and exit 1 if `--check` was given and a target is missed."""
    machine = environment()
    print(question)
    print(f"{conditions}; {args.rounds} rounds")
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print(table(rows))
    for target in targets:
        print(f"{'met   ' if target.met else 'MISSED'} {target.what}: {target.value:.2f}, promised <= {target.limit:g}")
    if args.json is not None:
        answer = {
            "question": question,
            "conditions": conditions,
            "rounds": args.rounds,
            "environment": machine,
            "rows": [{key: asdict(v) if isinstance(v, Quartiles) else v for key, v in row.items()} for row in rows],
            "targets": [{**asdict(target), "met": target.met} for target in targets],
        }
        args.json.write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")
    if args.check and not all(target.met for target in targets):
        sys.exit(1)


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as columns of text; what is not text is set to the right."""
    heads = list(rows[0])
    cells = [[_cell(row[head]) for head in heads] for row in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    left = [isinstance(rows[0][head], str) for head in heads]

    def line(parts: Sequence[str]) -> str:
        padded = (p.ljust(w) if is_left else p.rjust(w) for p, w, is_left in zip(parts, widths, left, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(heads), line(["-" * width for width in widths]), *map(line, cells)])


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _figures(value: float) -> str:
    """Three significant digits, never as a power of ten: 1234, 0.98, 0.00412."""
    if value == 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
