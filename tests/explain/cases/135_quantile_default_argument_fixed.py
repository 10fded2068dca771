"""Robust scaling of sensor features before the network sees them."""
import torch
from torch import nn


def robust_range(x, points=torch.tensor([0.25, 0.5, 0.75])):
    low, middle, high = torch.quantile(x, points.to(x.device), dim=0)
    return middle, (high - low).clamp(min=1e-3)


class RobustNet(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 12), nn.SELU(), nn.Linear(12, 1))

    def forward(self, x):
        middle, spread = robust_range(x)
        return self.net((x - middle) / spread)


def readings(count):
    x = torch.randn(count, 4)
    x[::7] *= 50
    return x


def main():
    torch.manual_seed(69)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = RobustNet(4).to(device)
    x = readings(40).to(device)
    out = net(x)
    print("out", tuple(out.shape), bool(out.isfinite().all()))
    print("OK")


main()
