"""Evaluates stored weights; loading assigns the tensors of the file to save memory."""
import tempfile
from pathlib import Path

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Linear(5, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.norm(self.stem(x)))


def store(folder):
    path = Path(folder) / "net.pt"
    torch.save(Net().state_dict(), path)
    return path


def restore(path, device):
    net = Net().to(device)
    weights = torch.load(path, map_location=device, weights_only=True)
    net.load_state_dict(weights, assign=True)
    return net.eval()


torch.manual_seed(66)
with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
    net = restore(store(folder), "cuda")
    print("out", net(torch.ones(1, 5, device="cuda")).tolist())
print("OK")
