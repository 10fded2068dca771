"""A small network learns from the softened answers of a larger, frozen one."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def fit(model, batches, loss_of, lr):
    optimizer = torch.optim.Adamax(model.parameters(), lr=lr)
    for step, (x, labels) in enumerate(batches):
        loss = loss_of(model(x), x, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


def batches(n, device, generator):
    for _ in range(n):
        x = torch.randn(32, 8, generator=generator)
        labels = (x[:, :4] * x[:, 4:]).argmax(dim=1)
        yield x.to(device), labels.to(device)


def train(device, steps=15, temperature=3.0):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    teacher = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    student = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4)).to(device)

    fit(teacher, batches(steps, device, generator), lambda logits, x, labels: F.cross_entropy(logits, labels), lr=1e-2)
    teacher.eval().requires_grad_(False)

    def distill(logits, x, labels):
        with torch.inference_mode():
            soft = F.softmax(teacher(x) / temperature, dim=1)
        soft = soft.clone()  # an inference tensor cannot be saved for backward
        divergence = F.kl_div(F.log_softmax(logits / temperature, dim=1), soft, reduction="batchmean")
        return 0.7 * temperature**2 * divergence + 0.3 * F.cross_entropy(logits, labels)

    fit(student, batches(steps, device, generator), distill, lr=1e-2)
    return teacher, student


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
