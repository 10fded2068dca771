"""A generative adversarial network learns points on a ring."""

import argparse
import math

import torch
from torch import nn


def ring(n, generator):
    angle = 2 * math.pi * torch.rand(n, generator=generator)
    return torch.stack((angle.cos(), angle.sin()), dim=1) + 0.02 * torch.randn(n, 2, generator=generator)


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, outputs)
    )


def train(device, steps=25, batch=64, latent=4):
    torch.manual_seed(0)
    numbers = torch.Generator().manual_seed(1)
    generator = mlp(latent, 2).to(device)
    discriminator = mlp(2, 1).to(device)
    bce = nn.BCEWithLogitsLoss()
    adam_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    adam_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    ones = torch.ones(batch, 1, device=device)
    zeros = torch.zeros(batch, 1, device=device)

    for step in range(steps):
        real = ring(batch, numbers).to(device)
        z = torch.randn(batch, latent, generator=numbers).to(device)
        fake = generator(z)

        loss_d = bce(discriminator(real), ones) + bce(discriminator(fake.detach()), zeros)
        adam_d.zero_grad()
        loss_d.backward()
        adam_d.step()

        loss_g = bce(discriminator(fake), ones)
        adam_g.zero_grad()
        loss_g.backward()
        adam_g.step()
        if step % 10 == 0:
            print(f"step {step}: discriminator {loss_d.item():.4f}, generator {loss_g.item():.4f}")
    return generator, discriminator


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
