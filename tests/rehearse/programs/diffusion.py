"""Denoising diffusion on two moons: the noise schedule is a buffer, the noise is drawn on the CPU."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class Schedule(nn.Module):
    def __init__(self, length):
        super().__init__()
        beta = torch.linspace(1e-3, 0.2, length)
        self.register_buffer("beta", beta)
        self.register_buffer("alpha_bar", torch.cumprod(1 - beta, dim=0))

    def noisy(self, x, t, noise):
        signal = self.alpha_bar[t].unsqueeze(1)
        return signal.sqrt() * x + (1 - signal).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.time = nn.Linear(16, width)
        self.inputs = nn.Linear(2, width)
        self.body = nn.Sequential(
            nn.SiLU(), nn.Linear(width, width), nn.GroupNorm(4, width), nn.SiLU(), nn.Linear(width, 2)
        )

    def forward(self, x, t):
        frequency = torch.exp(-math.log(100) * torch.arange(8, device=t.device) / 8)
        angles = t.unsqueeze(1) * frequency
        embedding = torch.cat((angles.sin(), angles.cos()), dim=1)
        return self.body(self.inputs(x) + self.time(embedding))


def moons(n, generator):
    angle = math.pi * torch.rand(n, generator=generator)
    upper = torch.stack((angle.cos(), angle.sin()), dim=1)
    lower = torch.stack((1 - angle.cos(), 0.5 - angle.sin()), dim=1)
    return torch.where(torch.rand(n, 1, generator=generator) < 0.5, upper, lower)


@torch.no_grad()
def sample(model, schedule, n, generator, device):
    x = torch.randn(n, 2, generator=generator).to(device)
    for t in reversed(range(len(schedule.beta))):
        predicted = model(x, torch.full((n,), t, device=device))
        beta, alpha_bar = schedule.beta[t], schedule.alpha_bar[t]
        x = (x - beta / (1 - alpha_bar).sqrt() * predicted) / (1 - beta).sqrt()
        if t > 0:
            x = x + beta.sqrt() * torch.randn(n, 2, generator=generator).to(device)
    return x


def train(device, steps=20, length=10):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    schedule, model = Schedule(length).to(device), Denoiser().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        x = moons(64, generator).to(device)
        t = torch.randint(length, (64,), generator=generator).to(device)
        noise = torch.randn(64, 2, generator=generator).to(device)
        loss = F.mse_loss(model(schedule.noisy(x, t, noise), t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    points = sample(model, schedule, 16, generator, device)
    print(f"{len(points)} points, mean {points.mean().item():.3f}")
    return model, schedule, points


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
