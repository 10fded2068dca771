"""Rates reviews of different lengths with a GRU over a packed batch."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

torch.manual_seed(12)
device = torch.device("cuda:0")


class Rater(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.rnn = nn.GRU(features, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, packed):
        _, last = self.rnn(packed)
        return self.out(last[0]).squeeze(1)


reviews = [torch.randn(n, 5) for n in (7, 4, 2)]
stars = torch.tensor([4.0, 1.0, 3.0], device=device)

rater = Rater(5, 8)
rater.to(device)
packed = pack_sequence(reviews)
packed.to(device)
loss = nn.functional.mse_loss(rater(packed), stars)
loss.backward()
print("loss", loss.item())
print("OK")
