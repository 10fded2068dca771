"""Mixture of experts with one expert per card."""
import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, width, places):
        super().__init__()
        self.places = [torch.device(p) for p in places]
        self.router = nn.Linear(width, len(places)).to(self.places[0])
        self.experts = nn.ModuleList(nn.Linear(width, width).to(p) for p in self.places)

    def forward(self, x):
        gate, chosen = self.router(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, (expert, place) in enumerate(zip(self.experts, self.places)):
            rows = (chosen == i).nonzero().squeeze(-1)
            if len(rows) == 0:
                continue
            answer = expert(x[rows].to(place))
            out.index_add_(0, rows, answer)
        return out * gate[:, None]


def main():
    torch.manual_seed(38)
    layer = Experts(8, ["cuda:0", "cuda:1"])
    tokens = torch.randn(30, 8, device="cuda:0")
    out = layer(tokens)
    print("out", tuple(out.shape), out.device)
    print("OK")


main()
