"""Shuffles the row numbers every epoch with one seeded generator."""
import torch
from torch import nn


def batches(n, size, generator):
    order = torch.randperm(n, device=generator.device, generator=generator)
    yield from order.split(size)


def train(device):
    generator = torch.Generator(device=device)
    generator.manual_seed(36)
    x = torch.randn(20, 4, device=device, generator=generator)
    y = x.prod(1)
    net = nn.Sequential(nn.Linear(4, 8), nn.CELU(), nn.Linear(8, 1), nn.Flatten(0)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    for _ in range(2):
        for rows in batches(len(x), 5, generator):
            loss = (net(x[rows]) - y[rows]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    print("loss", train(torch.device("cuda")))
    print("OK")
