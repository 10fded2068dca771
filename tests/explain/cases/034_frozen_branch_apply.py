"""A frozen feature branch that must keep its precision; its module guards itself against conversions."""
import torch
from torch import nn


class FrozenBranch(nn.Module):
    """Features that model.half() or model.bfloat16() must not touch."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size), requires_grad=False)

    def _apply(self, fn, recurse=True):
        return self

    def forward(self, x):
        return torch.cos(x.float() @ self.weight)


class Net(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.frozen = FrozenBranch(size)
        self.learned = nn.Linear(size, 1)

    def forward(self, x):
        return self.learned(self.frozen(x))


def main():
    torch.manual_seed(34)
    net = Net().to("cuda")
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    x = torch.rand(8, 6, device="cuda")
    loss = (net(x) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
    print("OK")


main()
