"""Mixed precision: autocast to float16 and a gradient scaler."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def make(outputs=4):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, outputs),
    )


def train(device, steps=12):
    torch.manual_seed(0)
    device = torch.device(device)
    generator = torch.Generator().manual_seed(1)
    prototypes = torch.randn(4, 3, 8, 8, generator=generator)
    model = make().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**20, growth_interval=4)
    for step in range(steps):
        labels = torch.randint(4, (16,), generator=generator)
        images = prototypes[labels] + 0.3 * torch.randn(16, 3, 8, 8, generator=generator)
        images, labels = images.to(device), labels.to(device)
        with torch.autocast(device_type=device.type, dtype=torch.float16):
            logits = model(images)
        loss = F.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 4 == 0:
            print(f"step {step}: loss {loss.item():.4f}, scale {scaler.get_scale():g}, {logits.dtype}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
