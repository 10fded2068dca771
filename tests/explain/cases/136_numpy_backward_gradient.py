"""A numpy routine in the middle of a network, wrapped as a custom function."""
import numpy as np
import torch
from torch import nn


class Reverse(torch.autograd.Function):
    """Cumulative sum from the right, done by numpy."""

    @staticmethod
    def forward(ctx, x):
        values = x.detach().cpu().numpy()
        out = np.ascontiguousarray(np.cumsum(values[:, ::-1], axis=1)[:, ::-1])
        return torch.from_numpy(out).to(x.device)

    @staticmethod
    def backward(ctx, grad):
        back = np.cumsum(grad.cpu().numpy(), axis=1)
        return torch.from_numpy(back)


class Survival(nn.Module):
    def __init__(self, bins=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, bins), nn.Softplus())

    def forward(self, x):
        return Reverse.apply(self.net(x))


def main():
    torch.manual_seed(70)
    net = Survival().to("cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(3):
        x = torch.randn(10, 4, device="cuda")
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 4))
    print("OK")


main()
