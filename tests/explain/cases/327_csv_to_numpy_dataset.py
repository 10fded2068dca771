"""Reads a CSV file and trains on it, features and target from one frame."""
import io

import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CSV = """length,width,height,weight
0.455,0.365,0.095,0.514
0.35,0.265,0.09,0.2255
0.53,0.42,0.135,0.677
0.44,0.365,0.125,0.516
0.33,0.255,0.08,0.205
0.425,0.3,0.095,0.3515
"""


def make_loader(file):
    df = pd.read_csv(file)
    x = torch.from_numpy(df.drop(columns="weight").to_numpy())
    y = torch.from_numpy(df[["weight"]].to_numpy(dtype="float32"))
    return DataLoader(TensorDataset(x, y), batch_size=3)


class Trainer:
    def __init__(self, model, device):
        self.device = device
        self.model = model.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, batch):
        x, y = [t.to(self.device) for t in batch]
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, loader):
        for batch in loader:
            last = self.step(batch)
        return last


torch.manual_seed(327)
Trainer(nn.Linear(3, 1), torch.device("mps")).fit(make_loader(io.StringIO(CSV)))
print("OK")
