"""A Wasserstein critic with weight and spectral normalisation, a symmetric layer of one's own, and pruned weights."""

import argparse

import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)


def make():
    middle = nn.Linear(16, 16)
    parametrize.register_parametrization(middle, "weight", Symmetric())
    pruned = nn.Linear(16, 16)
    prune.l1_unstructured(pruned, "weight", amount=0.3)
    return nn.Sequential(
        weight_norm(nn.Linear(4, 16)), nn.ReLU(), middle, nn.ReLU(), pruned, nn.ReLU(), spectral_norm(nn.Linear(16, 1))
    )


def train(device, steps=20):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    critic = make().to(device)
    optimizer = torch.optim.Adadelta(critic.parameters(), lr=0.5)
    for step in range(steps):
        real = torch.randn(32, 4, generator=generator) + 1.0
        fake = torch.randn(32, 4, generator=generator)
        real, fake = real.to(device), fake.to(device)
        with parametrize.cached():
            distance = critic(real).mean() - critic(fake).mean()
            optimizer.zero_grad()
            (-distance).backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: distance {distance.item():.4f}")
    parametrize.remove_parametrizations(critic[2], "weight")
    return critic


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
