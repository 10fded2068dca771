"""A vector-quantised autoencoder: an autograd.Function passes gradients straight through, the codebook is a moving average."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, codes):
        index = torch.cdist(x, codes).argmin(dim=1)
        ctx.save_for_backward(x, codes[index])
        ctx.mark_non_differentiable(index)
        return codes[index], index

    @staticmethod
    def backward(ctx, grad, _):
        x, nearest = ctx.saved_tensors
        return grad + 0.25 * 2 * (x - nearest) / x.numel(), None


class Codebook(nn.Module):
    def __init__(self, n, width):
        super().__init__()
        self.register_buffer("codes", torch.randn(n, width))
        self.register_buffer("counts", torch.ones(n))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        quantised, index = StraightThrough.apply(x, self.codes)
        if self.training:
            with torch.no_grad():
                chosen = F.one_hot(index, len(self.codes)).to(x.dtype)
                self.counts.mul_(0.9).add_(chosen.sum(dim=0), alpha=0.1)
                self.sums.mul_(0.9).addmm_(chosen.t(), x, alpha=0.1)
                self.codes.copy_(self.sums / self.counts.clamp(min=1e-2).unsqueeze(1))
        return quantised, index


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.codebook = Codebook(8, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        quantised, index = self.codebook(self.encoder(x))
        return self.decoder(quantised), index


def train(device, steps=20):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    prototypes = torch.randn(5, 8, generator=generator)
    model = Model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        x = prototypes[torch.randint(5, (32,), generator=generator)] + 0.1 * torch.randn(32, 8, generator=generator)
        x = x.to(device)
        decoded, index = model(x)
        loss = F.mse_loss(decoded, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}, {len(index.unique())} codes in use")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
