"""Positions by an integer range times a rate that is a float64 scalar."""
import numpy as np
import torch
from torch import nn


class TimeEmbedding(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.out = nn.Linear(size, size)

    def forward(self, t):
        rate = torch.tensor(-np.log(10000.0) / self.size)
        steps = torch.arange(0, self.size, 2, device=t.device)
        freq = torch.exp(torch.mul(steps, rate))
        angle = t.unsqueeze(1) * freq
        return self.out(torch.cat([angle.sin(), angle.cos()], dim=1))


torch.manual_seed(328)
device = torch.device("mps")
embedding = TimeEmbedding(8).to(device)
print("embedding", tuple(embedding(torch.rand(4, device=device)).shape))
print("OK")
