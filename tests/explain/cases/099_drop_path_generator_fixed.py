"""Residual network with reproducible stochastic depth."""
import torch
from torch import nn


class DropPath(nn.Module):
    def __init__(self, keep, rng):
        super().__init__()
        self.keep, self.rng = keep, rng

    def forward(self, x):
        if not self.training:
            return x
        mask = x.new_empty(len(x), 1)
        mask.bernoulli_(self.keep, generator=self.rng)
        return x * mask / self.keep


class Residual(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
        self.drop = drop

    def forward(self, x):
        return x + self.drop(self.inner(x))


def build(width, depth, seed):
    rng = torch.Generator(device="cuda")
    rng.manual_seed(seed)
    layers = [Residual(width, DropPath(1 - 0.1 * i, rng)) for i in range(1, depth + 1)]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def main():
    torch.manual_seed(33)
    net = build(14, 3, seed=5).cuda()
    x = torch.randn(10, 14, device="cuda")
    print("eval", round(net.eval()(x).mean().item(), 4))
    print("train", round(net.train()(x).mean().item(), 4))
    print("OK")


main()
