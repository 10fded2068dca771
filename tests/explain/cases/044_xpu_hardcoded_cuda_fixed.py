"""Trains on an Intel GPU with a script that was written for another make."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def accelerator():
    return torch.device("xpu" if torch.xpu.is_available() else "cpu")


def train(model, loader, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for x, y in loader:
        x = x.to(device)
        y = y.to(device, non_blocking=True)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(44)
device = accelerator()
x = torch.randn(16, 5)
loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).float()), batch_size=8)
print("loss", train(nn.Linear(5, 1).to(device), loader, device))
print("OK")
