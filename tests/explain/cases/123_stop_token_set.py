"""Sampling until every sentence has met one of several stop tokens."""
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Config:
    vocab: int = 12
    width: int = 16
    limit: int = 10
    stop: torch.Tensor = field(default_factory=lambda: torch.tensor([2, 3, 7]))


class NextWord(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.width)
        self.cell = nn.GRUCell(config.width, config.width)
        self.out = nn.Linear(config.width, config.vocab)

    def forward(self, token, state):
        state = self.cell(self.embed(token), state)
        return self.out(state), state


@torch.inference_mode()
def generate(net, config, count, device):
    token = torch.zeros(count, dtype=torch.long, device=device)
    state = torch.zeros(count, config.width, device=device)
    open_ = torch.ones(count, dtype=torch.bool, device=device)
    words = []
    for _ in range(config.limit):
        logits, state = net(token, state)
        token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
        words.append(token)
        open_ &= ~torch.isin(token, config.stop)
        if not open_.any():
            break
    return torch.stack(words, 1)


def main():
    torch.manual_seed(57)
    config = Config()
    net = NextWord(config).to("cuda")
    print("generated", generate(net, config, 3, "cuda").shape[0], "sentences")
    print("OK")


main()
