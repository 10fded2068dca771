"""Evaluates a learned curve on a fine grid."""
import torch
import torch.nn as nn

device = "mps"


class Curve(nn.Module):
    def __init__(self, knots):
        super().__init__()
        self.height = nn.Parameter(torch.rand(knots))

    def forward(self, t):
        at = t * (len(self.height) - 1)
        left = at.floor().long().clamp(max=len(self.height) - 2)
        part = at - left
        return self.height[left] * (1 - part) + self.height[left + 1] * part


def grid(n):
    return torch.linspace(0.0, 1.0, n, dtype=torch.float64, device=device)


torch.manual_seed(42)
curve = Curve(knots=6).to(device)
with torch.no_grad():
    values = curve(grid(21))
print("range", values.min().item(), values.max().item())
print("OK")
