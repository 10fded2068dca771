"""Fits a table of measurements that comes from NumPy."""
import numpy as np
import torch
from torch import nn


def measurements(n):
    rng = np.random.default_rng(41)
    x = rng.normal(size=(n, 4))
    return x, x @ np.array([0.5, -1.0, 2.0, 0.0])


def load(device):
    x, y = measurements(24)
    y = torch.tensor(y, dtype=torch.float32, device=device)
    x = torch.from_numpy(x).float()
    return x.to(device), y


torch.manual_seed(41)
x, y = load(torch.device("mps"))
net = nn.Linear(4, 1).to("mps")
loss = nn.functional.mse_loss(net(x).squeeze(1), y)
loss.backward()
print("loss", loss.item())
print("OK")
