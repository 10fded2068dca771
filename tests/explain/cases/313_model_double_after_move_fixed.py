"""A Gaussian process with a learned kernel, in double precision as everywhere on the CPU."""
import torch
from torch import nn


class DeepKernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, a, b):
        distance = torch.cdist(self.features(a), self.features(b))
        return torch.exp(-distance * self.log_scale.exp())


device = torch.device("mps")
torch.manual_seed(313)
kernel = DeepKernel().to(device)
x = torch.rand(10, 3, device=device, dtype=next(kernel.parameters()).dtype)
print("kernel", tuple(kernel(x, x).shape))
print("OK")
