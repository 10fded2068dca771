"""Activation checkpointing: three ways of computing the middle layers twice instead of keeping them."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.body(x)


class Deep(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inputs = nn.Linear(6, width)
        self.early = nn.ModuleList(Layer(width) for _ in range(2))
        self.middle = nn.Sequential(*(Layer(width) for _ in range(4)))
        self.late = Layer(width)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        x = self.inputs(x)
        for layer in self.early:
            x = checkpoint(layer, x, use_reentrant=True)
        x = checkpoint_sequential(self.middle, 2, x, use_reentrant=False)
        x = checkpoint(self.late, x, use_reentrant=False)
        return self.out(x)


def train(device, steps=12):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Deep().to(device)
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2)
    for step in range(steps):
        x = torch.randn(32, 6, generator=generator)
        labels = (x.sum(dim=1) > 0).long()
        x, labels = x.to(device), labels.to(device)
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
