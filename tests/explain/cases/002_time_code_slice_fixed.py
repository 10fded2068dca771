"""Forecasts a load curve; a table of time codes is cut to the window length at use."""
import argparse
import math

import torch
import torch.nn as nn


class LoadForecaster(nn.Module):
    def __init__(self, dim, longest=64):
        super().__init__()
        self.lift = nn.Linear(1, dim)
        steps = torch.arange(longest).unsqueeze(1)
        rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(1000.0) / dim))
        codes = torch.zeros(longest, dim)
        codes[:, 0::2] = torch.sin(steps * rates)
        codes[:, 1::2] = torch.cos(steps * rates)
        self.register_buffer("codes", codes.unsqueeze(0), persistent=False)
        self.attend = nn.MultiheadAttention(dim, num_heads=2, batch_first=True)
        self.head = nn.Linear(dim, 1)

    def forward(self, window):
        h = self.lift(window.unsqueeze(-1))
        h = h + self.codes[:, : h.size(1)]
        mixed, _ = self.attend(h, h, h, need_weights=False)
        return self.head(mixed[:, -1]).squeeze(-1)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(2)
    model = LoadForecaster(dim=8).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        history = torch.rand(4, 24, device=args.device)
        after = history.mean(dim=1)
        loss = nn.functional.l1_loss(model(history), after)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")
    print("OK")


main()
