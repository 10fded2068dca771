"""Denoising with timesteps drawn where the loss has been high."""
import torch
from torch import nn


class LossAware:
    def __init__(self, steps, device):
        self.device = device
        self.history = torch.ones(steps, device=device)

    def draw(self, count):
        chance = (self.history / self.history.sum()).to(self.device)
        return torch.multinomial(chance, count, replacement=True)

    def update(self, steps, losses):
        self.history.mul_(0.95)
        self.history.index_put_((steps,), losses, accumulate=True)


class Denoiser(nn.Module):
    def __init__(self, steps, width=20):
        super().__init__()
        self.time = nn.Embedding(steps, width)
        self.into, self.out = nn.Linear(4, width), nn.Linear(width, 4)

    def forward(self, x, t):
        return self.out(torch.relu(self.into(x) + self.time(t)))


def main():
    torch.manual_seed(55)
    device = torch.device("cuda")
    net, sampler = Denoiser(10).to(device), LossAware(10, device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(3):
        x = torch.randn(16, 4, device=device)
        t = sampler.draw(16)
        noise = torch.randn_like(x)
        losses = (net(x + noise * (t[:, None] + 1) / 10, t) - noise).square().mean(-1)
        sampler.update(t, losses.detach())
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    print("loss", round(losses.mean().item(), 4))
    print("OK")


main()
