"""A variational autoencoder; the noise of its reparametrisation is drawn on the CPU."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, pixels=64, hidden=32, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

    def forward(self, x, noise):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + torch.exp(0.5 * log_variance) * noise
        return self.decoder(z), mean, log_variance


def blobs(n, generator):
    centre = torch.randint(1, 7, (n, 2, 1, 1), generator=generator)
    y, x = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    return (((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2) < 5).float().flatten(1)


def train(device, steps=25):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = VAE().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        x = blobs(32, generator).to(device)
        noise = torch.randn(32, 4, generator=generator).to(device)
        decoded, mean, log_variance = model(x, noise)
        reconstruction = F.binary_cross_entropy_with_logits(decoded, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss = (reconstruction + divergence) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
