"""Beam search over a toy language model."""
import torch
from torch import nn


class Beam:
    def __init__(self, width, start, device):
        self.width = width
        self.tokens = torch.full((width, 1), start, device=device)
        self.scores = torch.full((width,), float("-inf"), device=device)
        self.scores[0] = 0.0

    def advance(self, logp):
        total = self.scores.unsqueeze(1) + logp
        vocab = logp.shape[1]
        self.scores, flat = total.flatten().topk(self.width)
        pairs = [divmod(i, vocab) for i in flat.tolist()]
        parents = torch.tensor([parent for parent, _ in pairs])
        words = torch.tensor([word for _, word in pairs], device=logp.device)
        kept = self.tokens.index_select(0, parents)
        self.tokens = torch.cat([kept, words.unsqueeze(1)], dim=1)


def search(model, device, width=3, length=4):
    beam = Beam(width, start=0, device=device)
    for _ in range(length):
        beam.advance(model(beam.tokens[:, -1]).log_softmax(-1))
    return beam.tokens[beam.scores.argmax()].tolist()


torch.manual_seed(56)
device = torch.device("cuda")
model = nn.Sequential(nn.Embedding(10, 5), nn.Linear(5, 10)).to(device)
with torch.no_grad():
    print("best", search(model, device))
print("OK")
