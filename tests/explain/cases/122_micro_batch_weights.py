"""Gradient accumulation over micro batches with sample weights."""
import torch
from torch import nn


def micro_batches(x, y, size, device):
    for lo in range(0, len(x), size):
        part_x, part_y = x[lo:lo + size], y[lo:lo + size]
        weight = 1.0 / (1.0 + part_y.abs())
        yield part_x.to(device), part_y.to(device), weight


def accumulate(net, optimizer, x, y, device):
    optimizer.zero_grad()
    total = 0.0
    for part_x, part_y, weight in micro_batches(x, y, 8, device):
        error = (net(part_x).squeeze(-1) - part_y).abs()
        error *= weight
        loss = error.sum() / len(x)
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def main():
    torch.manual_seed(56)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = nn.Sequential(nn.Linear(5, 10), nn.ELU(), nn.Linear(10, 1)).to(device)
    optimizer = torch.optim.NAdam(net.parameters(), lr=0.01)
    x = torch.randn(30, 5)
    y = x.sum(1) * 2
    for _ in range(3):
        print(round(accumulate(net, optimizer, x, y, device), 4))
    print("OK")


main()
