"""Sentence scorer fed by a dictionary-like batch object, as tokenizers return them."""
from collections import UserDict

import torch
from torch import nn
from torch.nn import functional as F

MODEL_INPUTS = ("input_ids", "attention_mask")


class Encoded(UserDict):
    def to(self, device):
        self.data = {k: v.to(device) for k, v in self.data.items()}
        return self


def tokenize(texts, labels):
    rows = [[ord(c) % 32 for c in text] for text in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return Encoded(input_ids=ids, attention_mask=(ids != 0).long(), labels=torch.tensor(labels))


class Scorer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.table = nn.Embedding(32, width)
        self.head = nn.Linear(width, 2)

    def forward(self, input_ids, attention_mask):
        h = self.table(input_ids) * attention_mask.unsqueeze(-1)
        return F.log_softmax(self.head(h.sum(1) / attention_mask.sum(1, keepdim=True)), dim=-1)


def main():
    torch.manual_seed(19)
    model = Scorer().to("cuda")
    batch = tokenize(["good boat", "bad", "a fine harbour"], [1, 0, 1]).to("cuda")
    scores = model(**{k: batch[k] for k in MODEL_INPUTS})
    loss = F.nll_loss(scores, batch["labels"])
    loss.backward()
    print("loss", round(loss.item(), 4))
    print("OK")


main()
