"""Speech decoder with location-sensitive attention."""
import torch
from torch import nn


class LocationAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.location = nn.Conv1d(1, width, 5, padding=2, bias=False)
        self.energy = nn.Linear(width, 1)

    def start(self, memory):
        return memory.new_zeros(memory.shape[:2])

    def forward(self, query, memory, cumulative):
        where = self.location(cumulative.unsqueeze(1)).transpose(1, 2)
        energy = self.energy(torch.tanh(self.query(query)[:, None] + memory + where)).squeeze(-1)
        weights = energy.softmax(-1)
        context = torch.bmm(weights[:, None], memory).squeeze(1)
        return context, cumulative + weights


class Decoder(nn.Module):
    def __init__(self, width=12, bins=8):
        super().__init__()
        self.attention = LocationAttention(width)
        self.frame = nn.Linear(2 * width, bins)
        self.back = nn.Linear(bins, width)

    def forward(self, memory, frames):
        cumulative = self.attention.start(memory)
        query = memory.mean(1)
        out = []
        for _ in range(frames):
            context, cumulative = self.attention(query, memory, cumulative)
            out.append(self.frame(torch.cat([query, context], -1)))
            query = torch.tanh(self.back(out[-1]))
        return torch.stack(out, 1)


torch.manual_seed(21)
decoder = Decoder().to("cuda")
spectrum = decoder(torch.randn(2, 9, 12).to("cuda"), frames=6)
print("spectrum", tuple(spectrum.shape), round(spectrum.std().item(), 4))
print("OK")
