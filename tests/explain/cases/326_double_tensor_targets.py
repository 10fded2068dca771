"""Targets as a list of numbers, made with torch.DoubleTensor."""
import torch
from torch import nn


def batches(xs, ys, size):
    for i in range(0, len(xs), size):
        yield torch.FloatTensor(xs[i : i + size]), torch.DoubleTensor(ys[i : i + size])


def fit(model, xs, ys, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in batches(xs, ys, 4):
        prediction = model(x.to(device)).squeeze(1)
        loss = nn.functional.l1_loss(prediction, y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(326)
xs = [[i / 12, 1 - i / 12] for i in range(12)]
ys = [0.3 * a - 0.2 * b for a, b in xs]
fit(nn.Linear(2, 1).to("mps"), xs, ys, "mps")
print("OK")
