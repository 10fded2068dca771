"""A diffusion schedule in double precision, looked up by time step."""
import torch
from torch import nn


class Diffusion:
    def __init__(self, steps):
        betas = torch.linspace(1e-4, 0.02, steps, dtype=torch.float64)
        self.alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
        self.steps = steps

    def noisy(self, x, t, noise):
        a = self.alphas_cumprod.float().to(t.device)[t].unsqueeze(1)
        return a.sqrt() * x + (1 - a).sqrt() * noise


def main():
    torch.manual_seed(318)
    device = torch.device("mps")
    diffusion = Diffusion(100)
    net = nn.Linear(8, 8).to(device)
    x = torch.randn(4, 8, device=device)
    noise = torch.randn_like(x)
    t = torch.randint(0, 100, (4,), device=device)
    loss = nn.functional.mse_loss(net(diffusion.noisy(x, t, noise)), noise)
    print("loss", loss.dim())
    print("OK")


main()
