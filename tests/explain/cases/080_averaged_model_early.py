"""Regression with stochastic weight averaging."""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


class Regressor(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def batches(count, device):
    for _ in range(count):
        x = torch.randn(32, 3)
        yield x.to(device), (x[:, 0] * x[:, 1] - x[:, 2]).to(device)


def main():
    torch.manual_seed(14)
    device = torch.device("cuda")
    model = Regressor()
    averaged = AveragedModel(model)
    model.to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for x, y in batches(6, device):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(model)
    with torch.no_grad():
        x, y = next(batches(1, device))
        print("last", round((model(x) - y).abs().mean().item(), 4))
        print("averaged", round((averaged(x) - y).abs().mean().item(), 4))
    print("OK")


main()
