"""A network solves u'' = -u with u(0) = 0 and u'(0) = 1: second derivatives, and L-BFGS with a line search."""

import argparse

import torch
from torch import nn


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def train(device, steps=4):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    inside = torch.linspace(0, 3, 24, device=device).unsqueeze(1).requires_grad_()
    start = torch.zeros(1, 1, device=device, requires_grad=True)
    slope = torch.ones(1, 1, device=device)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        u = model(inside)
        residual = derivative(derivative(u, inside), inside) + u
        u0 = model(start)
        loss = residual.square().mean() + u0.square().sum() + (derivative(u0, start) - slope).square().sum()
        loss.backward()
        return loss

    for step in range(steps):
        loss = optimizer.step(closure)
        print(f"step {step}: loss {loss.item():.6f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
