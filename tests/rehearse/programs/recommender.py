"""Matrix factorisation with sparse gradients, and bags of tags."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Recommender(nn.Module):
    def __init__(self, users, items, tags, width=8):
        super().__init__()
        self.user = nn.Embedding(users, width, sparse=True)
        self.item = nn.Embedding(items, width, sparse=True)
        self.tag = nn.EmbeddingBag(tags, width, mode="mean")
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, user, item, tags, offsets):
        item = self.item(item) + self.tag(tags, offsets)
        return (self.user(user) * item).sum(dim=1) + self.bias


def train(device, steps=15, users=20, items=15, tags=6):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    taste = torch.randn(users, 3, generator=generator) @ torch.randn(3, items, generator=generator)
    model = Recommender(users, items, tags).to(device)
    sparse = torch.optim.SparseAdam([*model.user.parameters(), *model.item.parameters()], lr=0.05)
    dense = torch.optim.SGD([*model.tag.parameters(), model.bias], lr=0.1)
    for step in range(steps):
        user = torch.randint(users, (32,), generator=generator)
        item = torch.randint(items, (32,), generator=generator)
        rating = taste[user, item]
        bags = torch.randint(tags, (64,), generator=generator)
        offsets = torch.arange(0, 64, 2)
        user, item, rating = user.to(device), item.to(device), rating.to(device)
        bags, offsets = bags.to(device), offsets.to(device)
        predicted = model(user, item, bags, offsets)
        loss = F.mse_loss(predicted, rating)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
