"""Memory readout with a fixed template that travels by an own to()."""
import torch
from torch import nn


class TemplateReader(nn.Module):
    def __init__(self, slots, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.template = torch.randn(1, slots, width) / width**0.5

    def to(self, *args, **kwargs):
        super().to(*args, **kwargs)
        self.template = self.template.to(*args, **kwargs)
        return self

    def forward(self, tokens):
        score = torch.bmm(self.query(tokens), self.template.expand(len(tokens), -1, -1).mT)
        return score.softmax(-1)


def entropy(chance):
    return -(chance * chance.clamp(min=1e-9).log()).sum(-1).mean()


def main():
    torch.manual_seed(49)
    reader = TemplateReader(slots=6, width=8)
    reader.to("cuda")
    optimizer = torch.optim.SGD(reader.parameters(), lr=0.5)
    for _ in range(3):
        tokens = torch.randn(2, 5, 8, device="cuda")
        loss = entropy(reader(tokens))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("entropy", round(loss.item(), 4))
    print("OK")


main()
