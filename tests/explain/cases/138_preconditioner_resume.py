"""Resuming a run with a small preconditioned optimizer."""
import io

import torch
from torch import nn


class Whitened:
    """SGD whose matrix gradients are multiplied from the left by a running inverse covariance."""

    def __init__(self, params, rate):
        self.params = [p for p in params if p.dim() == 2]
        self.rate = rate
        self.left = [torch.eye(len(p), device=p.device) for p in self.params]

    @torch.no_grad()
    def step(self):
        for p, left in zip(self.params, self.left):
            p.sub_(left @ p.grad, alpha=self.rate)
            left.mul_(0.9).add_(0.1 * torch.linalg.inv(torch.eye(len(p), device=p.device) + p.grad.cov()))
            p.grad = None

    def state_dict(self):
        return {"left": self.left}

    def load_state_dict(self, state):
        self.left = [m.clone() for m in state["left"]]


def advance(net, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(16, 6, device="cuda")
        loss = nn.functional.mse_loss(net(x), x.roll(1, dims=1))
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(72)
    net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6)).cuda()
    optimizer = Whitened(net.parameters(), 0.1)
    first = advance(net, optimizer, 2)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)

    saved = torch.load(file, map_location="cpu")
    net.load_state_dict(saved["net"])
    optimizer = Whitened(net.parameters(), 0.1)
    optimizer.load_state_dict(saved["optimizer"])
    print("first", round(first, 4), "resumed", round(advance(net, optimizer, 2), 4))
    print("OK")


main()
