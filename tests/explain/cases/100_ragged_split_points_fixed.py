"""Sentences of different length travel as one long run of tokens."""
import torch
from torch import nn


class Packed:
    """Tokens of a whole batch in one row, with the length of each sentence."""

    def __init__(self, sentences):
        self.tokens = torch.cat(sentences)
        self.lengths = torch.tensor([len(s) for s in sentences])

    def to(self, device):
        self.tokens, self.lengths = self.tokens.to(device), self.lengths.to(device)
        return self


class Reader(nn.Module):
    def __init__(self, words=30, width=10):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.mix = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, packed):
        h = self.embed(packed.tokens)
        cuts = packed.lengths.cumsum(0)[:-1]
        pieces = torch.tensor_split(h, cuts.cpu())
        return torch.stack([self.mix(p.T).amax(-1) for p in pieces])


def main():
    torch.manual_seed(34)
    reader = Reader().to("cuda")
    packed = Packed([torch.randint(0, 30, (n,)) for n in (5, 8, 3, 6)]).to("cuda")
    states = reader(packed)
    print("states", tuple(states.shape), round(states.mean().item(), 4))
    print("OK")


main()
