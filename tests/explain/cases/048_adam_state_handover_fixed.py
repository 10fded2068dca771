"""Starts on the CPU for a few steps, then hands weights and Adam state over to a copy on the GPU."""
import copy

import torch
from torch import nn


def steps(model, optimizer, device, count):
    for _ in range(count):
        x = torch.rand(5, 3, device=device)
        loss = (model(x) - x.prod(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def hand_over(model, optimizer, device):
    there = copy.deepcopy(model).to(device)
    new = torch.optim.Adam(there.parameters(), lr=0.01)
    for old_p, new_p in zip(model.parameters(), there.parameters()):
        old = optimizer.state[old_p]
        new.state[new_p] = {key: v.clone() if key == "step" else v.to(device) for key, v in old.items()}
    return there, new


torch.manual_seed(48)
small = nn.Sequential(nn.Linear(3, 6), nn.ReLU6(), nn.Linear(6, 1))
adam = torch.optim.Adam(small.parameters(), lr=0.01)
print("warm", steps(small, adam, "cpu", 2))
large, adam = hand_over(small, adam, "cuda")
print("main", steps(large, adam, "cuda", 2))
print("OK")
