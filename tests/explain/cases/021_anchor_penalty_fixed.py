"""Fine-tuning that is pulled back to the starting weights."""
import torch
from torch import nn


def anchor_penalty(model, anchors):
    total = 0.0
    for name, parameter in model.named_parameters():
        total = total + (parameter - anchors[name]).square().sum()
    return total


def pretrained():
    torch.manual_seed(21)
    return nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 2))


def finetune(device, steps=3):
    model = pretrained()
    model.to(device)
    anchors = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        x = torch.randn(8, 5, device=device)
        loss = nn.functional.mse_loss(model(x), x[:, :2]) + 0.01 * anchor_penalty(model, anchors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print("loss", finetune("cuda"))
    print("OK")
