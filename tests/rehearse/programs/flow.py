"""A normalising flow (RealNVP): masks are buffers, the base distribution is torch.distributions'."""

import argparse

import torch
from torch import nn
from torch.distributions import Independent, Normal


class Coupling(nn.Module):
    def __init__(self, mask, width=24):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 4))

    def forward(self, x):
        kept = x * self.mask
        scale, shift = self.net(kept).chunk(2, dim=1)
        scale = torch.tanh(scale) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * scale.exp() + shift), scale.sum(dim=1)


class Flow(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        masks = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        self.layers = nn.ModuleList(Coupling(masks[i % 2].clone()) for i in range(layers))
        self.mean, self.deviation = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.ones(2))

    def log_prob(self, x):
        total = torch.zeros(len(x), device=x.device)
        for layer in self.layers:
            x, log_determinant = layer(x)
            total += log_determinant
        base = Independent(Normal(self.mean, nn.functional.softplus(self.deviation)), 1)
        return base.log_prob(x) + total


def train(device, steps=15):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Flow().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        x = torch.randn(64, 2, generator=generator)
        x = torch.stack((x[:, 0], 0.5 * x[:, 1] + x[:, 0].square()), dim=1)  # a banana
        x = x.to(device)
        loss = -model.log_prob(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: {loss.item():.4f} nats")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
