"""Low-rank adapters on a frozen base, which are merged into it in the end."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Adapted(nn.Module):
    """A frozen linear layer and a trainable low-rank correction."""

    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        device = base.weight.device
        self.a = nn.Parameter((torch.randn(rank, base.in_features) / base.in_features**0.5).to(device))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, device=device))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.a), self.b)

    @torch.no_grad()
    def merged(self):
        self.base.weight += self.scale * self.b @ self.a
        return self.base


def replace(module, of, new):
    for name, child in module.named_children():
        if isinstance(child, of):
            setattr(module, name, new(child))
        else:
            replace(child, of, new)


def train(device, steps=20):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Sequential(nn.Linear(24, 24), nn.ReLU()), nn.Linear(24, 1))
    model = model.to(device)
    replace(model, nn.Linear, Adapted)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    for step in range(steps):
        x = torch.randn(32, 6, generator=generator)
        y = torch.sin(x.sum(dim=1, keepdim=True))
        x, y = x.to(device), y.to(device)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    replace(model, Adapted, Adapted.merged)
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
