"""Sequence tagger; a scorer submodule holds a fixed table of allowed tag transitions."""
import torch
from torch import nn

TAGS = 6


class TransitionScorer(nn.Module):
    """Adds a penalty for every pair of neighbouring tags that the scheme forbids."""

    def __init__(self, tags):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        penalty = torch.zeros(tags, tags)
        penalty[0, 1:] = -4.0
        self.penalty = penalty.tril() + penalty.triu()

    def forward(self, scores):
        pairs = scores.unsqueeze(3) + scores.unsqueeze(2).roll(-1, dims=1)
        return pairs + self.scale * self.penalty


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.emit = nn.Linear(16, TAGS)
        self.scorer = TransitionScorer(TAGS)

    def forward(self, tokens):
        return self.scorer(self.emit(self.words(tokens)))


if __name__ == "__main__":
    torch.manual_seed(1)
    device = torch.device("cuda:0")
    tagger = Tagger()
    tagger.to(device)
    sentence = torch.randint(0, 50, (2, 9)).to(device)
    pairs = tagger(sentence)
    print("pair scores", tuple(pairs.shape))
    print("OK")
