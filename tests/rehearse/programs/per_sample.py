"""Differentially private training: torch.func and vmap give the gradient of each sample, which is clipped and noised."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, vmap


def train(device, steps=12, clip=1.0, sigma=0.1):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)

    def loss_of(parameters, x, label):
        return F.cross_entropy(functional_call(model, parameters, (x.unsqueeze(0),)), label.unsqueeze(0))

    per_sample = vmap(grad_and_value(loss_of), in_dims=(None, 0, 0))
    for step in range(steps):
        x = torch.randn(24, 6, generator=generator)
        labels = x[:, :3].argmax(dim=1)
        x, labels = x.to(device), labels.to(device)
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        gradients, losses = per_sample(parameters, x, labels)
        norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients.values()])
        norms = torch.linalg.vector_norm(norms, dim=0)
        factor = (clip / (norms + 1e-6)).clamp(max=1)
        for name, p in model.named_parameters():
            clipped = torch.einsum("n,n...->...", factor, gradients[name])
            noise = sigma * clip * torch.randn(p.shape, generator=generator)
            p.grad = (clipped + noise.to(device)) / len(x)
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            print(f"step {step}: loss {losses.mean().item():.4f}, longest gradient {norms.max().item():.3f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
