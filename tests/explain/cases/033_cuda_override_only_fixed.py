"""Collaborative filtering with item popularity kept beside the weights."""
import torch
import torch.nn as nn


class Recommender(nn.Module):
    def __init__(self, users, items, dim=4):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.register_buffer("popularity", torch.linspace(0.0, 1.0, items))

    def forward(self, users):
        match = torch.mm(self.user(users), self.item.weight.t())
        return match.add(self.popularity)


def top(model, users, k=3):
    with torch.no_grad():
        return model(users).topk(k, dim=1).indices


torch.manual_seed(33)
device = torch.device("cuda", torch.cuda.current_device())
model = Recommender(users=9, items=12).to(device)
best = top(model, torch.tensor([0, 4, 8], device=device))
print("best", tuple(best.shape))
print("OK")
