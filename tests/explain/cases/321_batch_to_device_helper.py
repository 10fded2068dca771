"""A batch of several inputs goes to the device by a function of one's own."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patients(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(321)
        self.vitals = rng.normal(size=(n, 6))
        self.ward = rng.integers(0, 4, n)
        self.risk = (self.vitals[:, 0] > 0).astype(np.float32)

    def __len__(self):
        return len(self.risk)

    def __getitem__(self, i):
        return {"ward": self.ward[i], "vitals": self.vitals[i], "risk": self.risk[i]}


def to_device(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    return batch


class Risk(nn.Module):
    def __init__(self):
        super().__init__()
        self.ward = nn.Embedding(4, 3)
        self.out = nn.Linear(9, 1)

    def forward(self, batch):
        return self.out(torch.cat([self.ward(batch["ward"]), batch["vitals"]], dim=1)).squeeze(1)


def main():
    torch.manual_seed(321)
    model = Risk().to("mps")
    for batch in DataLoader(Patients(40), batch_size=20):
        batch = to_device(batch, "mps")
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch["risk"])
        loss.backward()
    print("OK")


main()
