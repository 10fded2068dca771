"""A likelihood that is summed up in double precision."""
import torch
from torch import nn


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(3))
        self.log_scale = nn.Parameter(torch.zeros(3))

    def log_prob(self, x):
        z = (x - self.shift) * torch.exp(-self.log_scale)
        density = -0.5 * z.pow(2) - self.log_scale
        return density.sum(dim=1)


device = torch.device("mps")
torch.manual_seed(325)
flow = Flow().to(device)
x = torch.randn(32, 3).to(device)
loss = -flow.log_prob(x).mean()
loss.backward()
print("loss", loss.dim())
print("OK")
