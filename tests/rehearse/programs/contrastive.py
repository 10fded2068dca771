"""Contrastive learning: two noisy views of a sample attract each other, all others repel (SimCLR)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, inputs=20, width=32, projection=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width))
        self.projector = nn.Sequential(nn.ReLU(), nn.Linear(width, projection))

    def forward(self, x):
        return F.normalize(self.projector(self.body(x)), dim=1)


def nt_xent(z, temperature):
    """z: (2N, D), views of sample i at i and i + N."""
    n = len(z) // 2
    similarity = z @ z.t() / temperature
    itself = torch.eye(2 * n, dtype=torch.bool, device=z.device)
    similarity = similarity.masked_fill(itself, float("-inf"))
    partner = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(similarity, partner)


def train(device, steps=25, n=32):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(5, 20, generator=generator)
    model = Encoder().to(device)
    log_temperature = nn.Parameter(torch.tensor(-1.0, device=device))
    optimizer = torch.optim.AdamW([*model.parameters(), log_temperature], lr=3e-3)
    for step in range(steps):
        x = centres[torch.randint(5, (n,), generator=generator)]
        noise = 0.3 * torch.randn(2, n, 20, generator=generator)
        views = (x + noise).flatten(0, 1)  # (2N, D)
        views = views.to(device)
        loss = nt_xent(model(views), log_temperature.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return model, log_temperature


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
