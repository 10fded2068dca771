"""Recommendation from bags of clicked items."""
import itertools

import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, items=70, width=10):
        super().__init__()
        self.history = nn.EmbeddingBag(items, width, mode="mean")
        self.items = nn.Linear(width, items)

    def forward(self, ids, offsets):
        return self.items(self.history(ids, offsets))


def flatten(histories):
    ids = torch.tensor(list(itertools.chain.from_iterable(histories)))
    starts = [0, *itertools.accumulate(len(h) for h in histories)][:-1]
    return ids, torch.tensor(starts)


def recommend(net, histories, device, k=3):
    ids, offsets = flatten(histories)
    scores = net(ids.to(device), offsets)
    return scores.topk(k).indices.tolist()


if __name__ == "__main__":
    torch.manual_seed(58)
    device = torch.device("cuda")
    net = Recommender().to(device).eval()
    clicks = [[4, 8, 15], [16, 23], [42, 4, 8, 69]]
    with torch.no_grad():
        for row in recommend(net, clicks, device):
            print(row)
    print("OK")
