"""A text classifier on word vectors that were read into NumPy."""
import io

import numpy as np
import torch
from torch import nn

VECTORS = io.StringIO("the 0.1 0.2 0.3\ncat 0.5 -0.1 0.0\nsat -0.3 0.8 0.2\nmat 0.4 0.4 -0.6\n")


def read_vectors(file):
    words, rows = [], []
    for line in file:
        word, *numbers = line.split()
        words.append(word)
        rows.append(np.array(numbers, dtype=float))
    return words, np.vstack(rows)


class Bag(nn.Module):
    def __init__(self, vectors, classes):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(torch.from_numpy(vectors), freeze=False)
        self.out = nn.Linear(vectors.shape[1], classes)

    def forward(self, ids):
        return self.out(self.embed(ids).mean(dim=1))


def main():
    torch.manual_seed(323)
    device = torch.device("mps")
    words, vectors = read_vectors(VECTORS)
    ids = torch.tensor([[words.index(w) for w in "the cat sat".split()]])
    model = Bag(vectors, 2)
    model = model.to(device)
    print("logits", tuple(model(ids.to(device)).shape))
    print("OK")


main()
