"""A text histogram of the residuals of a fit."""
import numpy as np
import torch
from torch import nn


def fit(x, y, rounds=40):
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).to(x.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(rounds):
        loss = nn.functional.smooth_l1_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def show(residual):
    counts, edges = np.histogram(residual.cpu(), bins=8)
    for count, left in zip(counts, edges):
        print(f"{left:+.2f} {'#' * int(count)}")


def main():
    torch.manual_seed(35)
    device = torch.device("cuda")
    x = torch.linspace(-3, 3, 40, device=device)[:, None]
    y = x.sin() + 0.1 * torch.randn_like(x)
    net = fit(x, y)
    with torch.no_grad():
        residual = (y - net(x)).flatten()
    show(residual)
    print("OK")


main()
