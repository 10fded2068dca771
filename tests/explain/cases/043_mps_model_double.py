"""Checks a small network in double precision before training it."""
import torch
from torch import nn


class Physics(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 8)
        self.outer = nn.Linear(8, 1)

    def forward(self, q):
        return self.outer(torch.sin(self.inner(q)))


def prepare(double):
    torch.manual_seed(43)
    model = Physics()
    if double:
        model.double()
    return model.to("mps")


def main():
    model = prepare(double=True)
    q = torch.rand(10, 2, dtype=next(model.parameters()).dtype, device="mps")
    print("energy", model(q).mean().item())
    print("OK")


if __name__ == "__main__":
    main()
