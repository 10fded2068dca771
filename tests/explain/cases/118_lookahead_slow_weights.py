"""Lookahead: slow weights follow the fast ones every few steps."""
import torch
from torch import nn


class Lookahead:
    def __init__(self, inner, every=2, pace=0.5):
        self.inner, self.every, self.pace, self.count = inner, every, pace, 0
        self.slow = [p.detach().clone() for g in inner.param_groups for p in g["params"]]

    def zero_grad(self):
        self.inner.zero_grad()

    @torch.no_grad()
    def step(self):
        self.inner.step()
        self.count += 1
        if self.count % self.every:
            return
        fast_weights = [p for g in self.inner.param_groups for p in g["params"]]
        for slow, fast in zip(self.slow, fast_weights):
            slow.lerp_(fast, self.pace)
            fast.copy_(slow)


def run():
    torch.manual_seed(52)
    net = nn.Sequential(nn.Linear(7, 14), nn.Sigmoid(), nn.Linear(14, 1))
    optimizer = Lookahead(torch.optim.SGD(net.parameters(), lr=0.1))
    net.cuda()
    for _ in range(4):
        x = torch.randn(20, 7).cuda()
        loss = (net(x).squeeze(-1) - x.amax(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


print("loss", round(run(), 4))
print("OK")
