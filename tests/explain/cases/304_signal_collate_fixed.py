"""Windows of a signal, put together by a collate function of one's own."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, signal, size):
        self.signal = signal
        self.size = size

    def __len__(self):
        return len(self.signal) - self.size

    def __getitem__(self, start):
        return self.signal[start : start + self.size], int(self.signal[start + self.size] > 0)


def collate(samples):
    windows = np.stack([window for window, _ in samples])
    labels = np.array([label for _, label in samples])
    return torch.from_numpy(windows).float().unsqueeze(1), torch.from_numpy(labels)


def main():
    torch.manual_seed(304)
    device = torch.device("mps")
    signal = np.sin(np.linspace(0, 20, 200)) + 0.1 * np.random.default_rng(304).standard_normal(200)
    loader = DataLoader(Windows(signal, 16), batch_size=40, collate_fn=collate)
    net = nn.Sequential(nn.Conv1d(1, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)).to(device)
    for windows, labels in loader:
        logits = net(windows.to(device))
        loss = nn.functional.cross_entropy(logits, labels.to(device))
    print("loss", round(loss.item(), 1))
    print("OK")


if __name__ == "__main__":
    main()
