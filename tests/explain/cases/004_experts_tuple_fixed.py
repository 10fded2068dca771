"""Mixture of experts: a gate chooses between a few small networks."""
import torch
from torch import nn

DEVICE = torch.device("cuda", 0)


def expert(dim):
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.SiLU())


class Mixture(nn.Module):
    def __init__(self, dim, count):
        super().__init__()
        self.gate = nn.Linear(dim, count)
        self.experts = nn.ModuleList(expert(dim) for _ in range(count))

    def forward(self, x):
        share = self.gate(x).softmax(-1)
        out = torch.zeros_like(x)
        for i, net in enumerate(self.experts):
            out = out + share[:, i : i + 1] * net(x)
        return out


def main():
    torch.manual_seed(4)
    mixture = Mixture(dim=8, count=3).to(DEVICE)
    x = torch.randn(5, 8).to(DEVICE)
    print("mean", mixture(x).mean().item())
    print("OK")


if __name__ == "__main__":
    main()
