"""Moves first and converts afterwards: too late."""
import torch
from torch import nn


class Ode(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, state, steps):
        for _ in range(steps):
            state = state + 0.1 * self.field(state)
        return state


def simulate(device):
    model = Ode().to(device)
    start = torch.randn(8, 2)
    start = start.to(device)
    start = start.double()
    return model.double()(start, 4)


torch.manual_seed(312)
print("state", tuple(simulate("mps").shape))
print("OK")
