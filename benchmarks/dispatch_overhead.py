"""What does a rehearsal add to one operator?

    python benchmarks/dispatch_overhead.py --check

The naive way is the empty dispatch mode; the peers are torch's own DebugMode and FakeTensorMode. Operators on a few
floats, so that nearly all of the time is dispatch. Overhead is what a way costs more than plain CPU.

Promised for `a + b`: at most 1.3 of the overhead of the empty mode, at most a tenth of FakeTensorMode's.
"""

from __future__ import annotations

import contextlib
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import torch
from measure.elsewhere import FAKEGPU, asked, is_installed, serve
from measure.peers import DEBUG, EMPTY, FAKE, FUNCTION, LEAN, PLAIN, REHEARSAL, REHEARSAL_HOST, Peer, agree
from measure.rounds import CLOCK, Quartiles, Rounds, Target, least, parser, play, report

GO_SECONDS = 0.0015


@dataclass(frozen=True, slots=True)
class Operation:
    """A statement and the tensors it works on, all float32."""

    statement: str
    shapes: dict[str, tuple[int, ...]]

    def operands(self, device: str) -> dict[str, object]:
        made = {name: torch.full(shape, 0.5, device=device) for name, shape in self.shapes.items()}
        return {"torch": torch, "many": [torch.ones(4, device=device) for _ in range(8)], **made}


OPERATIONS = (
    Operation("a + b", {"a": (4,), "b": (4,)}),
    Operation("a.mm(b)", {"a": (2, 2), "b": (2, 2)}),
    Operation("a.add_(b)", {"a": (4,), "b": (4,)}),
    Operation("a.view(2, 2)", {"a": (4,)}),
    Operation("a.sum()", {"a": (4,)}),
    Operation("torch._foreach_add(many, 1.0)", {}),
)
PEERS = (PLAIN, EMPTY, LEAN, FUNCTION, DEBUG, FAKE, REHEARSAL, REHEARSAL_HOST)


def check_answer(operation: Operation, peer: Peer, plain: torch.Tensor) -> None:
    with peer.enter():
        if not agree(peer, answer(operation, peer.device), plain):
            raise SystemExit(f"{peer.name}: {operation.statement} is not what the CPU computes")


def answer(operation: Operation, device: str) -> torch.Tensor:
    result = eval(operation.statement, operation.operands(device))
    return torch.cat(list(result)) if isinstance(result, list | tuple) else result


def sampler(operation: Operation, peer: Peer) -> Callable[[], float]:
    count = 0  # found at the first sample, the one that does not count

    def sample() -> float:
        nonlocal count
        with peer.enter():
            timer = timeit.Timer(operation.statement, timer=CLOCK, globals=operation.operands(peer.device))
            warm = least(timer, 10)  # also plans the operator, where planning is done once
            count = count or max(10, int(GO_SECONDS / warm))
            return least(timer, count)

    return sample


def row(operation: Operation, way: str, rounds: Rounds) -> dict[str, object]:
    def overhead(to: Peer) -> Quartiles | None:
        return None if way == PLAIN.name else rounds.overhead_ratio(way, to.name, over=PLAIN.name)

    return {
        "operation": operation.statement,
        "way": way,
        "us": rounds.seconds(way) * 1e6,
        "x plain": rounds.ratio(way, PLAIN.name),
        "overhead / empty mode's": overhead(EMPTY),
        "overhead / FakeTensorMode's": overhead(FAKE),
    }


def main() -> None:
    statements = [operation.statement for operation in OPERATIONS]
    args = parser(__doc__.splitlines()[0], rounds=25, parts=statements).parse_args()
    torch.set_num_threads(1)
    if args.elsewhere:
        serve({operation.statement: sampler(operation, FAKEGPU) for operation in OPERATIONS})
        return

    rows, targets = [], []
    with asked(__file__) if is_installed() else contextlib.nullcontext() as fakegpu:
        for operation in OPERATIONS:
            if args.only not in (None, operation.statement):
                continue
            plain = answer(operation, "cpu")
            for peer in PEERS:
                check_answer(operation, peer, plain)
            candidates = {peer.name: sampler(operation, peer) for peer in PEERS}
            if fakegpu is not None:
                candidates[FAKEGPU.name] = fakegpu(operation.statement)
            rounds = play(candidates, args.rounds)
            rows += [row(operation, name, rounds) for name in candidates]
            if operation is OPERATIONS[0]:
                for to, limit in (EMPTY, 1.3), (FAKE, 0.1):
                    share = rounds.overhead_ratio(REHEARSAL.name, to.name, over=PLAIN.name).median
                    what = f"overhead of a rehearsal, {operation.statement}, in {to.name}'s"
                    targets.append(Target(what, share, limit))
    sizes = "a, b: 4 float32 (16 bytes), in mm 2x2; many: 8 tensors of 4; one thread"
    report(__doc__.splitlines()[0], sizes, rows, targets, args)


if __name__ == "__main__":
    main()
