"""Streaming GRU that keeps its hidden state from call to call."""
import torch
from torch import nn


class StreamingGRU(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.cell = nn.GRU(size, size, batch_first=True)
        self.read = nn.Linear(size, 1)
        self.memory = None

    def forward(self, chunk):
        out, memory = self.cell(chunk, self.memory)
        self.memory = memory.detach()
        return self.read(out)


def chunks(signal, size):
    for start in range(0, signal.size(1), size):
        yield signal[:, start : start + size]


@torch.no_grad()
def main():
    torch.manual_seed(17)
    model = StreamingGRU(4)
    print("smoke test", tuple(model(torch.zeros(1, 3, 4)).shape))
    device = torch.device("cuda")
    model.to(device)
    signal = torch.randn(1, 12, 4).to(device)
    for chunk in chunks(signal, 5):
        print("chunk", model(chunk).mean().item())
    print("OK")


main()
