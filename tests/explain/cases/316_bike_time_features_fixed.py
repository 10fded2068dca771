"""Hour and season as sines and cosines, for a forecast of rented bikes."""
import numpy as np
import pandas as pd
import torch
from torch import nn


def time_features(index):
    hour = 2 * np.pi * index.hour / 24
    day = 2 * np.pi * index.dayofyear / 365
    return np.column_stack([np.sin(hour), np.cos(hour), np.sin(day), np.cos(day)])


class Rentals(torch.utils.data.Dataset):
    def __init__(self, index, counts):
        self.features = torch.from_numpy(time_features(index)).float()
        self.counts = torch.tensor(counts, dtype=torch.float32)

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        return {"features": self.features[i], "count": self.counts[i]}


def run(device):
    index = pd.date_range("2024-03-01", periods=96, freq="h")
    counts = np.random.default_rng(316).poisson(20, len(index))
    loader = torch.utils.data.DataLoader(Rentals(index, counts), batch_size=32)
    net = nn.Linear(4, 1).to(device)
    for batch in loader:
        x = batch["features"].to(device)
        y = batch["count"].to(device)
        loss = nn.functional.poisson_nll_loss(net(x).squeeze(1), y)
        loss.backward()
    return loss.item()


torch.manual_seed(316)
run(torch.device("mps"))
print("OK")
