"""Runs an encoder on the second GPU; the first one is left to somebody else."""
import argparse

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab, dim, longest):
        super().__init__()
        self.word = nn.Embedding(vocab, dim)
        self.place = nn.Embedding(longest, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        place = torch.arange(ids.shape[1]).cuda()
        return self.norm(self.word(ids) + self.place(place))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", type=int, default=1)
    args = parser.parse_args(argv)
    device = torch.device("cuda", args.gpu)
    torch.manual_seed(39)
    encoder = Encoder(vocab=40, dim=8, longest=16).to(device)
    ids = torch.randint(0, 40, (2, 5), device=device)
    print("codes", encoder(ids).std().item())
    print("OK")


main([])
