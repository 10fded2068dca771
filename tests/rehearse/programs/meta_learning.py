"""Model-agnostic meta-learning of sine waves: gradients flow through the inner steps."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


def task(generator, n=10):
    amplitude, phase = 1 + torch.rand((), generator=generator), math.pi * torch.rand((), generator=generator)
    x = 10 * torch.rand(2 * n, 1, generator=generator) - 5
    y = amplitude * torch.sin(x + phase)
    return x[:n], y[:n], x[n:], y[n:]


def adapted(model, x, y, lr, inner=2):
    parameters = dict(model.named_parameters())
    for _ in range(inner):
        loss = F.mse_loss(functional_call(model, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        parameters = {name: p - lr[name].exp() * g for (name, p), g in zip(parameters.items(), gradients, strict=True)}
    return parameters


def train(device, steps=6, tasks=3):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(1, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1)).to(device)
    rates = {
        name: nn.Parameter(torch.tensor(-4.0, device=device)) for name, _ in model.named_parameters()
    }  # learned too
    optimizer = torch.optim.Adam([*model.parameters(), *rates.values()], lr=5e-3)
    for step in range(steps):
        total = torch.zeros((), device=device)
        for _ in range(tasks):
            x, y, query_x, query_y = (t.to(device) for t in task(generator))
            parameters = adapted(model, x, y, rates)
            total = total + F.mse_loss(functional_call(model, parameters, (query_x,)), query_y)
        optimizer.zero_grad()
        (total / tasks).backward()
        optimizer.step()
        print(f"step {step}: loss {total.item() / tasks:.4f}")
    return model, nn.ParameterList(rates.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
