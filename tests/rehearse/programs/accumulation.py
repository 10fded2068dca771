"""Gradient accumulation: four small batches make one step, with a warm-up of the learning rate."""

import argparse

import torch
from torch import nn


def train(device, steps=10, accumulate=4, batch=16):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3, weight_decay=1e-2, decoupled_weight_decay=True)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=3)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, decay], milestones=[3])
    criterion = nn.HuberLoss()
    running = torch.zeros((), device=device)
    for step in range(steps):
        running.zero_()
        for _ in range(accumulate):
            x = torch.randn(batch, 8, generator=generator)
            y = x.prod(dim=1, keepdim=True) + x.sum(dim=1, keepdim=True)
            x, y = x.to(device), y.to(device)
            loss = criterion(model(x), y) / accumulate
            loss.backward()
            running += loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if step % 5 == 0:
            print(f"step {step}: loss {running.item():.4f}, gradient norm {norm:.3f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
