"""Streaming keyword spotter: the state is carried from chunk to chunk."""
import torch
from torch import nn


class Spotter(nn.Module):
    def __init__(self, bands=6, width=14):
        super().__init__()
        self.width = width
        self.rnn = nn.LSTM(bands, width, batch_first=True)
        self.word = nn.Linear(width, 3)

    def blank_state(self, streams):
        return torch.zeros(1, streams, self.width), torch.zeros(1, streams, self.width)

    def forward(self, chunk, state):
        h, state = self.rnn(chunk, state)
        return self.word(h[:, -1]), state


def listen(net, chunks, device):
    state = net.blank_state(chunks.shape[1])
    for part in state:
        part.to(device)
    heard = []
    for chunk in chunks:
        logits, state = net(chunk.to(device), state)
        heard.append(logits.argmax(-1).tolist())
    return heard


if __name__ == "__main__":
    torch.manual_seed(68)
    device = torch.device("cuda")
    net = Spotter().to(device).eval()
    with torch.no_grad():
        print(listen(net, torch.randn(4, 2, 10, 6), device))
    print("OK")
