"""A home-made optimizer: sign of a momentum that is allocated in the constructor."""
import torch
import torch.nn as nn


class SignMomentum(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["trend"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                trend = self.state[p]["trend"]
                trend.mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                p.sub_(trend.sign(), alpha=group["lr"])


def main():
    torch.manual_seed(24)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = SignMomentum(net.parameters(), lr=0.01)
    net.cuda()
    for _ in range(4):
        x = torch.rand(16, 3).cuda()
        loss = nn.functional.smooth_l1_loss(net(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
