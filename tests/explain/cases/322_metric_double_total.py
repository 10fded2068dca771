"""Sums up a metric in double precision on the device."""
import torch
from torch import nn


class Mean:
    def __init__(self, device):
        self.total = torch.zeros((), dtype=torch.double, device=device)
        self.count = 0

    def update(self, values):
        self.total += values.sum()
        self.count += values.numel()

    def compute(self):
        return (self.total / self.count).item()


@torch.no_grad()
def evaluate(model, batches, device):
    metric = Mean(device)
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        metric.update((model(x).squeeze(1) - y).abs())
    return metric.compute()


torch.manual_seed(322)
device = torch.device("mps")
model = nn.Linear(3, 1).to(device)
batches = [(torch.randn(8, 3), torch.randn(8)) for _ in range(3)]
print("error", evaluate(model, batches, device) > 0)
print("OK")
