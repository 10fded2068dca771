"""Standardises features with statistics of the training rows."""
import torch
import torch.nn as nn


class Scaler:
    def fit(self, rows):
        self.center = rows.mean(0)
        self.spread = rows.std(0).clamp(min=1e-6)
        return self

    def __call__(self, rows):
        return torch.div(rows - self.center.to(rows.device), self.spread.to(rows.device))


class Experiment:
    def __init__(self, device):
        self.device = device
        g = torch.Generator().manual_seed(46)
        self.rows = torch.randn(30, 5, generator=g) * 4 + 2
        self.values = self.rows[:, :1].sign()
        self.scaler = Scaler().fit(self.rows)
        self.net = nn.Sequential(nn.Linear(5, 5), nn.Hardtanh(), nn.Linear(5, 1)).to(device)

    def run(self, epochs=2):
        optimizer = torch.optim.Adadelta(self.net.parameters())
        for _ in range(epochs):
            for rows, values in zip(self.rows.split(10), self.values.split(10)):
                rows, values = rows.to(self.device), values.to(self.device)
                loss = (self.net(self.scaler(rows)) * values).neg().exp().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return loss.item()


torch.manual_seed(46)
print("loss", Experiment("cuda").run())
print("OK")
