"""Moves a batch key by key, as in the examples for transformers."""
import numpy as np
import torch
from torch import nn


def encode(texts, scores):
    ids = torch.tensor([[len(word) for word in text.split()] for text in texts])
    return {"ids": ids, "scores": torch.from_numpy(np.asarray(scores))}


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, ids, scores):
        prediction = self.out(self.embed(ids).mean(dim=1)).squeeze(1)
        return nn.functional.mse_loss(prediction, scores)


device = torch.device("mps")
torch.manual_seed(332)
model = Scorer().to(device)
batch = encode(["a small boat", "the old harbour"], [0.25, 0.75])
for key, value in batch.items():
    batch[key] = value.to(device)
loss = model(**batch)
loss.backward()
print("loss", loss.dim())
print("OK")
