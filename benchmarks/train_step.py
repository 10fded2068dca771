"""What does a rehearsal add to a training step?

    python benchmarks/train_step.py --check

A transformer of ordinary size, where arithmetic is most of a step, and a small MLP, where dispatch is. Forward,
cross-entropy, backward, AdamW. The naive way is the empty dispatch mode; the peer is FakeTensorMode, which computes
nothing. AdamW runs as `foreach`, its default on CUDA, in all of them, so that all do the same work and every loss must
be the CPU's to the last bit; the row "plain CPU, AdamW per tensor" is what the CPU's own default costs.

Promised: a transformer step at most 1.25 of plain CPU, an MLP step at most 1.25 of the empty mode's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from measure.elsewhere import FAKEGPU, asked, is_installed, serve
from measure.peers import EMPTY, FAKE, FUNCTION, LEAN, PLAIN, REHEARSAL, Peer
from measure.rounds import Rounds, Target, clock, parser, play, report
from torch import nn

PER_TENSOR = replace(PLAIN, name="plain CPU, AdamW per tensor")
PEERS = (PLAIN, PER_TENSOR, EMPTY, LEAN, FUNCTION, FAKE, REHEARSAL)


class Transformer(nn.Module):
    """Causal, with fused attention. (B, T) token ids to (B, T, V) logits, C wide."""

    def __init__(self, vocabulary: int = 512, context: int = 128, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.token(ids) + self.position  # (B, T, C)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # (B, H, T, D)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.mlp_norm(x))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    sizes: str
    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    steps: int  # of one go
    to: Peer  # what the promise compares with


WORKLOADS = (
    Workload(
        "transformer",
        "C=256, 4 layers, 4 heads, V=512, B=8, T=128",
        Transformer,
        lambda: (torch.randint(512, (8, 128)), torch.randint(512, (8, 128))),
        steps=1,
        to=PLAIN,
    ),
    Workload(
        "MLP",
        "64-128-128-10, N=32",
        mlp,
        lambda: (torch.rand(32, 64), torch.randint(10, (32,))),
        steps=10,
        to=EMPTY,
    ),
)


def stepper(workload: Workload, peer: Peer) -> Callable[[], torch.Tensor]:
    """A function that takes one training step and returns its loss. Call it, and this, with the peer on."""
    torch.manual_seed(0)
    model = workload.build()
    x, y = workload.batch()
    if peer.device != "cpu":  # FakeTensorMode cannot take even `model.to("cpu")`: its parameters refuse to be swapped
        model, x, y = model.to(peer.device), x.to(peer.device), y.to(peer.device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=peer is not PER_TENSOR)

    def step() -> torch.Tensor:
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def check_answers(workload: Workload) -> None:
    """Three steps have the same losses everywhere, to the last bit; where nothing is computed, the same shapes."""
    losses = {}
    for peer in PEERS:
        if peer is not PER_TENSOR:
            with peer.enter():
                step = stepper(workload, peer)
                taken = [step() for _ in range(3)]
                losses[peer.name] = [loss.item() for loss in taken] if peer.computes else [loss.shape for loss in taken]
    for peer in PEERS:
        expected = losses[PLAIN.name] if peer.computes else [torch.Size([])] * 3
        if losses.get(peer.name, expected) != expected:
            raise SystemExit(f"{peer.name}: losses of the {workload.name} are {losses[peer.name]}, not {expected}")


def sampler(workload: Workload, peer: Peer) -> Callable[[], float]:
    def sample() -> float:
        with peer.enter():
            step = stepper(workload, peer)
            step()  # the first one makes gradients and the optimizer's state
            return clock(step, workload.steps)

    return sample


def row(workload: Workload, way: str, rounds: Rounds) -> dict[str, object]:
    return {
        "step": workload.name,
        "way": way,
        "ms": rounds.seconds(way) * 1e3,
        "x plain": rounds.ratio(way, PLAIN.name),
        "x empty mode": rounds.ratio(way, EMPTY.name),
    }


def main() -> None:
    names = [workload.name for workload in WORKLOADS]
    args = parser(__doc__.splitlines()[0], rounds=11, parts=names).parse_args()
    torch.set_num_threads(1)
    if args.elsewhere:
        serve({workload.name: sampler(workload, FAKEGPU) for workload in WORKLOADS})
        return

    rows, targets = [], []
    with asked(__file__) if is_installed() else contextlib.nullcontext() as fakegpu:
        for workload in WORKLOADS:
            if args.only not in (None, workload.name):
                continue
            check_answers(workload)
            candidates = {peer.name: sampler(workload, peer) for peer in PEERS}
            if fakegpu is not None:
                candidates[FAKEGPU.name] = fakegpu(workload.name)
            rounds = play(candidates, args.rounds)
            rows += [row(workload, name, rounds) for name in candidates]
            ratio = rounds.ratio(REHEARSAL.name, workload.to.name)
            targets.append(Target(f"{workload.name} step in a rehearsal, in {workload.to.name}'s", ratio.median, 1.25))
    sizes = "; ".join(f"{workload.name}: {workload.sizes}" for workload in WORKLOADS)
    report(__doc__.splitlines()[0], f"{sizes}; float32, one thread", rows, targets, args)


if __name__ == "__main__":
    main()
