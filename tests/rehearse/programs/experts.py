"""A mixture of experts: each sample goes to its two best experts, with a loss that balances them."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    def __init__(self, width, n=4, chosen=2):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, n, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, width)) for _ in range(n)
        )
        self.register_buffer("load", torch.zeros(n, dtype=torch.long))

    def forward(self, x):
        probabilities = self.router(x).softmax(dim=1)
        weights, indices = probabilities.topk(self.chosen, dim=1)
        weights = weights / weights.sum(dim=1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, column = torch.where(indices == number)
            if rows.numel():
                out.index_add_(0, rows, weights[rows, column].unsqueeze(1) * expert(x[rows]))
        counts = torch.bincount(indices.flatten(), minlength=len(self.experts))
        self.load += counts
        share = counts.to(x.dtype) / counts.sum()
        return out, len(self.experts) * (share * probabilities.mean(dim=0)).sum()


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.experts = Experts(width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        hidden, balance = self.experts(x)
        return self.out(x + hidden), balance


def train(device, steps=15):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        x = torch.randn(48, 8, generator=generator)
        y = torch.where(x[:, :1] > 0, x[:, 1:2], -x[:, 2:3])
        x, y = x.to(device), y.to(device)
        predicted, balance = model(x)
        loss = F.l1_loss(predicted, y) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}, load {model.experts.load.tolist()}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
