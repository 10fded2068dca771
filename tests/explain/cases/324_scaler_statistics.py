"""Undoes a StandardScaler on the device."""
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn


class Unscale(nn.Module):
    def __init__(self, scaler):
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(scaler.mean_))
        self.register_buffer("scale", torch.as_tensor(scaler.scale_))

    def forward(self, x):
        return x * self.scale + self.mean


torch.manual_seed(324)
device = torch.device("mps")
targets = np.random.default_rng(324).normal(40, 9, size=(50, 2))
scaler = StandardScaler().fit(targets)
model = nn.Sequential(nn.Linear(5, 2), Unscale(scaler))
model = model.to(device)
print("out", tuple(model(torch.randn(3, 5, device=device)).shape))
print("OK")
