"""Sensor readings with a progress count; the split is made by random_split."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Sensors(Dataset):
    def __init__(self, n):
        rng = np.random.RandomState(331)
        self.readings = rng.rand(n, 8)
        self.faulty = (self.readings.max(axis=1) > 0.95).astype("int64")

    def __len__(self):
        return len(self.readings)

    def __getitem__(self, index):
        return self.readings[index], self.faulty[index]


def main():
    torch.manual_seed(331)
    device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    training, validation = random_split(Sensors(50), [40, 10])
    loader = DataLoader(training, batch_size=10, shuffle=True)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for step, (readings, faulty) in enumerate(loader):
        readings = readings.to(device)
        faulty = faulty.to(device)
        loss = nn.functional.cross_entropy(net(readings), faulty)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("steps", step + 1)
    print("OK")


if __name__ == "__main__":
    main()
