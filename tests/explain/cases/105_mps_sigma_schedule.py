"""Euler sampler with a noise schedule from numpy, on an Apple GPU."""
import numpy as np
import torch
from torch import nn


class Euler:
    def __init__(self, steps):
        ramp = np.linspace(0.0, 1.0, steps)
        levels = (10.0 ** (1 / 7) + ramp * (0.03 ** (1 / 7) - 10.0 ** (1 / 7))) ** 7
        self.sigmas = torch.from_numpy(np.append(levels, 0.0))

    def start(self, device):
        self.sigmas = self.sigmas.to(device)
        return self.sigmas

    def step(self, i, x, denoised):
        slope = (x - denoised) / self.sigmas[i]
        return x + slope * (self.sigmas[i + 1] - self.sigmas[i])


@torch.no_grad()
def main():
    torch.manual_seed(39)
    device = torch.device("mps")
    net = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 6)).to(device)
    sampler = Euler(8)
    sigmas = sampler.start(device)
    x = torch.randn(4, 6, device=device) * sigmas[0]
    for i in range(8):
        x = sampler.step(i, x, net(x / (1 + sigmas[i])))
    print("spread", round(x.std().item(), 4))
    print("OK")


main()
