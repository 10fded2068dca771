"""Saves the best weights during training; the file is written from CPU tensors."""
import io

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Saver:
    def __init__(self):
        self.best = float("inf")
        self.blob = io.BytesIO()

    def maybe_save(self, model, score):
        if score >= self.best:
            return
        self.best = score
        self.blob.seek(0)
        torch.save({name: value.cpu() for name, value in model.state_dict().items()}, self.blob)


def epoch(model, loader, optimizer, device):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.huber_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


torch.manual_seed(27)
device = torch.device("cuda")
x = torch.randn(24, 6)
loader = DataLoader(TensorDataset(x, x.amax(1, keepdim=True)), batch_size=8)
model = nn.Linear(6, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
saver = Saver()
for number in range(3):
    score = epoch(model, loader, optimizer, device)
    saver.maybe_save(model, score)
    print(number, score)
print("OK")
