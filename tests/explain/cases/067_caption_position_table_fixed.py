"""Caption decoder whose sinusoidal position code is worked out with numpy."""
import numpy as np
import torch
from torch import nn


def sinusoid(length, width):
    pos = np.arange(length)[:, None]
    rate = 1.0 / 10000 ** (2 * (np.arange(width) // 2) / width)
    table = pos * rate[None]
    table[:, 0::2] = np.sin(table[:, 0::2])
    table[:, 1::2] = np.cos(table[:, 1::2])
    return table


class CaptionDecoder(nn.Module):
    def __init__(self, vocab=40, width=24):
        super().__init__()
        self.width = width
        self.words = nn.Embedding(vocab, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 48, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids):
        h = self.words(ids)
        code = torch.from_numpy(sinusoid(64, self.width)).float().to(h.device)
        h += code[: h.shape[1]]
        return self.out(self.block(h))


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = CaptionDecoder().to(device)
    ids = torch.randint(0, 40, (3, 11), device=device)
    loss = nn.functional.cross_entropy(net(ids).transpose(1, 2), ids)
    loss.backward()
    print(f"loss {loss.item():.3f}")
    print("OK")


if __name__ == "__main__":
    main()
