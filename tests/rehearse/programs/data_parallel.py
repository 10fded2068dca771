"""nn.DataParallel over two devices; with one, the two halves of a batch go through the network in turn."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class InTurn(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return torch.cat([self.module(part) for part in x.chunk(2)])


def train(device, steps=12):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)).to(device)
    several = device != "cpu" and getattr(torch, device).device_count() > 1
    model = nn.DataParallel(network) if several else InTurn(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        x = torch.randn(32, 10, generator=generator)
        labels = x[:, :3].argmax(dim=1)
        x, labels = x.to(device), labels.to(device)
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
