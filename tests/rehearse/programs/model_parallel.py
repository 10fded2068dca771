"""A network whose halves live on two devices, where there are two; the micro-batches follow each other through it."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Split(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16)).to(first)
        self.decoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3)).to(second)

    def forward(self, x):
        outputs = []
        for part in x.chunk(2):
            hidden = self.encoder(part.to(self.first))
            outputs.append(self.decoder(hidden.to(self.second)))
        return torch.cat(outputs)


def train(device, steps=20):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    if device != "cpu" and getattr(torch, device).device_count() > 1:
        first, second = torch.device(device, 0), torch.device(device, 1)
    else:
        first = second = torch.device(device)
    model = Split(first, second)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        x = torch.randn(32, 10, generator=generator)
        labels = x[:, :3].argmax(dim=1)
        logits = model(x)
        loss = F.cross_entropy(logits, labels.to(second))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f} on {loss.device}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
