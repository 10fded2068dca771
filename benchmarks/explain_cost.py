"""What does an explanation cost: before anything fails, and after?

    python benchmarks/explain_cost.py --check

Before: a function that multiplies two tensors, bare, in `contextlib.nullcontext`, and in `wherry.explain()`. After: the
post-mortem of a mismatch in a small module and in a transformer of 12 layers (148 parameters), both rehearsed, beside what
Python itself takes to format the traceback. The answer is checked before its time counts.

Promised: `wherry.explain()` costs no more than twice `nullcontext`; a post-mortem takes at most 0.2 s.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable

import torch
from measure.rounds import Target, parser, play, report
from torch import nn

import wherry

TIMES = 2_000


class Scaled(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.scale = torch.ones(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale


def failure(model: nn.Module) -> BaseException:
    """What a model with one stray raises."""
    with wherry.rehearse("cuda"):
        moved = Scaled(model).to("cuda").eval()
        try:
            moved(torch.ones(2, 4, 32, device="cuda"))
        except RuntimeError as error:
            return error
    raise AssertionError("it was to fail")


def seconds_of(block: Callable[[], contextlib.AbstractContextManager[object]] | None) -> Callable[[], float]:
    a, b = torch.ones(4), torch.ones(4)

    def run() -> float:
        start = time.perf_counter()
        for _ in range(TIMES):
            if block is None:
                a * b
            else:
                with block():
                    a * b
        return (time.perf_counter() - start) / TIMES

    return run


def explaining(error: BaseException) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        diagnosis = wherry.explain_exception(error)
        seconds = time.perf_counter() - start
        assert diagnosis is not None
        assert diagnosis.culprit is not None
        assert diagnosis.culprit.name == "self.scale"
        return seconds

    return run


def formatting(error: BaseException) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        traceback.format_exception(error)
        return time.perf_counter() - start

    return run


def main() -> None:
    args = parser(__doc__.splitlines()[0], rounds=9).parse_args()
    torch.set_num_threads(1)
    small = failure(nn.Linear(32, 32))
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    large = failure(nn.TransformerEncoder(layer, 12, enable_nested_tensor=False))

    rounds = play(
        {
            "a * b": seconds_of(None),
            "a * b in nullcontext": seconds_of(contextlib.nullcontext),
            "a * b in wherry.explain()": seconds_of(wherry.explain),
            "format the traceback": formatting(large),
            "explain, small module": explaining(small),
            "explain, transformer": explaining(large),
        },
        rounds=args.rounds,
    )
    rows = [
        {"what": name, "us": rounds.seconds(name) * 1e6, "x a * b": rounds.ratio(name, "a * b")}
        for name in rounds.samples
    ]
    entering = rounds.overhead_ratio("a * b in wherry.explain()", "a * b in nullcontext", over="a * b").median
    targets = [
        Target("entering wherry.explain(), in nullcontext's", entering, 2.0),
        Target("seconds of a post-mortem", max(rounds.samples["explain, transformer"]), 0.2),
    ]
    report(__doc__.splitlines()[0], "a, b: 4 float32; x: (2, 4, 32) float32", rows, targets, args)


if __name__ == "__main__":
    main()
