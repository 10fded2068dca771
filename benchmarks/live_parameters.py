"""Does backward get slower because other parameters are alive on the device?

    python benchmarks/live_parameters.py --check

It must not: a rehearsal that finds out where gradients go by walking over all parameters it knows pays for every model
that is in memory. The naive way stands beside ours as proof that this benchmark would see it: a registry of live
parameters that is walked after each backward. "Alone" is the same way with no unrelated parameter alive.

Promised: backward of a small MLP in a rehearsal with 10,000 unrelated parameters alive at most 1.2 of alone
(plain CPU itself grows by some hundredths, from colder caches).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from measure.peers import PLAIN, REHEARSAL, Peer
from measure.rounds import GOES, Rounds, Target, clock, parser, play, report
from torch import nn

COUNTS = (0, 1_000, 10_000)
BACKWARDS = 20  # of one go


@dataclass(frozen=True, slots=True)
class Way:
    name: str
    peer: Peer
    walks: bool = False


WAYS = (Way("plain CPU", PLAIN), Way("naive: registry walk", PLAIN, walks=True), Way("rehearsal on cuda", REHEARSAL))


def sampler(way: Way, alive: int) -> Callable[[], float]:
    def sample() -> float:
        with way.peer.enter():
            device = way.peer.device
            torch.manual_seed(0)
            unrelated = [nn.Parameter(torch.zeros(4, device=device)) for _ in range(alive)]
            model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
            x, y = torch.rand(32, 64, device=device), torch.zeros(32, dtype=torch.long, device=device)
            registry = [weakref.ref(parameter) for parameter in (*unrelated, *model.parameters())]

            def walk() -> None:
                for reference in registry:
                    parameter = reference()
                    if parameter is not None and parameter.grad is not None:
                        assert parameter.grad.device == parameter.device

            def backward() -> None:
                loss.backward(retain_graph=True)
                if way.walks:
                    walk()

            loss = F.cross_entropy(model(x), y)
            backward()
            seconds = clock(backward, BACKWARDS)
            check_answer(model, loss)
            return seconds

    return sample


def check_answer(model: nn.Module, loss: torch.Tensor) -> None:
    """Gradients that were added up over all backwards are that many times the gradient of one."""
    bias = model[-1].bias
    (once,) = torch.autograd.grad(loss, bias)
    torch.testing.assert_close(bias.grad.cpu(), (once * (GOES * BACKWARDS + 1)).cpu())


def label(way: Way, alive: int) -> str:
    return f"{way.name}, {alive:,} alive"


def row(way: Way, alive: int, rounds: Rounds) -> dict[str, object]:
    return {
        "way": way.name,
        "unrelated parameters": f"{alive:,}",
        "us of a backward": rounds.seconds(label(way, alive)) * 1e6,
        "x alone": rounds.ratio(label(way, alive), label(way, 0)),
    }


def main() -> None:
    args = parser(__doc__.splitlines()[0], rounds=15).parse_args()
    torch.set_num_threads(1)

    cases = [(way, alive) for way in WAYS for alive in COUNTS]
    rounds = play({label(way, alive): sampler(way, alive) for way, alive in cases}, args.rounds)

    naive, ours = (rounds.ratio(label(way, COUNTS[-1]), label(way, 0)).median for way in WAYS[1:])
    if naive < 2:
        raise SystemExit(f"a registry walk costs only {naive:.2f}: this run cannot tell whether one is there")
    targets = [Target(f"backward in a rehearsal, {COUNTS[-1]:,} parameters alive, in that of alone", ours, 1.2)]
    sizes = "MLP 64-128-10, N=32, unrelated parameters of 4; float32, one thread"
    report(__doc__.splitlines()[0], sizes, [row(way, alive, rounds) for way, alive in cases], targets, args)


if __name__ == "__main__":
    main()
