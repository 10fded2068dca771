"""Resumes training; the optimizer is a plain class that saves and restores its own velocity."""
import io

import torch
from torch import nn


class Nesterov:
    def __init__(self, params, lr):
        self.params = list(params)
        self.lr = lr
        self.velocity = [torch.zeros_like(p) for p in self.params]

    def state_dict(self):
        return {"velocity": self.velocity}

    def load_state_dict(self, state):
        self.velocity = [v.to(p.device) for v, p in zip(state["velocity"], self.params)]

    def step(self):
        with torch.no_grad():
            for i, p in enumerate(self.params):
                self.velocity[i].mul_(0.9).add_(p.grad)
                p.sub_(self.lr * (p.grad + 0.9 * self.velocity[i]))
                p.grad = None


def build(device):
    model = nn.Linear(4, 2).to(device)
    return model, Nesterov(model.parameters(), lr=0.05)


def train(model, optimizer, device, steps=2):
    for _ in range(steps):
        x = torch.randn(6, 4, device=device)
        loss = (model(x) - x[:, 2:]).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(25)
device = torch.device("cuda")
model, optimizer = build(device)
print("before", train(model, optimizer, device))
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)

file.seek(0)
checkpoint = torch.load(file, map_location="cpu")
model, optimizer = build(device)
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
print("after", train(model, optimizer, device))
print("OK")
