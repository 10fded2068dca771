"""Ratings as Python floats: the default collate makes them float64."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Ratings(Dataset):
    def __init__(self, n):
        draw = random.Random(305)
        self.rows = [(draw.randrange(20), draw.randrange(50), draw.choice([1.0, 2.5, 4.0, 5.0])) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        user, film, rating = self.rows[i]
        return user, film, rating


class Factors(nn.Module):
    def __init__(self, users, films, size=8):
        super().__init__()
        self.users = nn.Embedding(users, size)
        self.films = nn.Embedding(films, size)

    def forward(self, user, film):
        return (self.users(user) * self.films(film)).sum(1)


def epoch(model, loader, optimizer, device):
    for user, film, rating in loader:
        user, film = user.to(device), film.to(device)
        rating = rating.to(device)
        loss = nn.functional.mse_loss(model(user, film), rating)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(305)
device = "mps"
model = Factors(20, 50).to(device)
loader = DataLoader(Ratings(64), batch_size=16)
epoch(model, loader, torch.optim.SGD(model.parameters(), lr=0.1), device)
print("OK")
