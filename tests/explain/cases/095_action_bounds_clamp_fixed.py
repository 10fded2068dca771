"""Deterministic policy with exploration noise, clamped to the action space."""
import torch
from torch import nn


class Box:
    def __init__(self, low, high):
        self.low = torch.tensor(low)
        self.high = torch.tensor(high)

    def __repr__(self):
        return f"Box({self.low.tolist()}, {self.high.tolist()})"


class Actor(nn.Module):
    def __init__(self, space, obs=5):
        super().__init__()
        self.space = space
        self.net = nn.Sequential(nn.Linear(obs, 24), nn.ReLU(), nn.Linear(24, len(space.low)))

    def act(self, obs, noise=0.3):
        raw = self.net(obs)
        raw = raw + noise * torch.randn_like(raw)
        return raw.clamp(self.space.low.to(raw.device), self.space.high.to(raw.device))


class Critic(nn.Module):
    def __init__(self, obs=5, act=2):
        super().__init__()
        self.q = nn.Bilinear(obs, act, 1)

    def forward(self, obs, act):
        return self.q(obs, act).squeeze(-1)


def main():
    torch.manual_seed(29)
    dev = "cuda"
    space = Box([-0.5, -1.0], [0.5, 2.0])
    actor, critic = Actor(space).to(dev), Critic().to(dev)
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
    for _ in range(3):
        obs = torch.randn(32, 5, device=dev)
        loss = -critic(obs, actor.act(obs)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(space, "loss", round(loss.item(), 4))
    print("OK")


main()
