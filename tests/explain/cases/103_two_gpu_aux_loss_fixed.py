"""Two-stage network with an auxiliary classifier after the first stage."""
import torch
from torch import nn
import torch.nn.functional as F


class Staged(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Sequential(nn.Linear(12, 24), nn.ReLU()).to("cuda:0")
        self.side = nn.Linear(24, 5).to("cuda:0")
        self.two = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5)).to("cuda:1")

    def forward(self, x):
        h = self.one(x)
        return self.two(h.to("cuda:1")), self.side(h)


def losses(net, x, y):
    logits, side_logits = net(x)
    main_loss = F.cross_entropy(logits, y.to(logits.device))
    aux = F.cross_entropy(side_logits, y)
    return main_loss + 0.3 * aux.to(main_loss.device)


def fit(steps):
    torch.manual_seed(37)
    net = Staged()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(steps):
        x, y = torch.randn(20, 12, device="cuda:0"), torch.randint(0, 5, (20,), device="cuda:0")
        loss = losses(net, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


print("loss", round(fit(3), 4))
print("OK")
