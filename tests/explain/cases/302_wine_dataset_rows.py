"""A Dataset over the rows of a DataFrame, in batches."""
import pandas as pd
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Wine(Dataset):
    def __init__(self, frame):
        self.frame = frame.drop(columns="target")
        self.labels = frame["target"]

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, index):
        row = torch.tensor(self.frame.iloc[index].values)
        return row, int(self.labels.iloc[index])


def train(model, loader, device):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for features, labels in loader:
        features = features.to(device)
        labels = labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(features), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(302)
    device = torch.device("mps")
    loader = DataLoader(Wine(load_wine(as_frame=True).frame), batch_size=32, shuffle=True)
    train(nn.Linear(13, 3).to(device), loader, device)
    print("OK")
