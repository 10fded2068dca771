"""Positions as sines and cosines, computed in NumPy and kept in a buffer."""
import numpy as np
import torch
from torch import nn


def sinusoids(length, channels):
    position = np.arange(length)[:, None]
    rate = np.exp(np.arange(0, channels, 2) * (-np.log(10000.0) / channels))
    table = np.zeros((length, channels))
    table[:, 0::2] = np.sin(position * rate)
    table[:, 1::2] = np.cos(position * rate)
    return torch.from_numpy(table).float()


class Encoder(nn.Module):
    def __init__(self, vocabulary, length=32, size=16):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.register_buffer("pe", sinusoids(length, size))
        self.layer = nn.TransformerEncoderLayer(size, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, tokens):
        return self.layer(self.embed(tokens) + self.pe[: tokens.shape[1]])


def main():
    torch.manual_seed(311)
    device = torch.device("mps")
    encoder = Encoder(100).to(device)
    out = encoder(torch.randint(0, 100, (2, 10), device=device))
    print("out", tuple(out.shape))
    print("OK")


main()
