"""Only the rows of new words are trained; a gradient hook freezes the old ones."""
import torch
from torch import nn


def train_only_new(weight, old):
    allowed = torch.ones(len(weight), 1)
    allowed[:old] = 0

    def hook(gradient):
        return gradient.mul(allowed)

    weight.register_hook(hook)


class Language(nn.Module):
    def __init__(self, words=30, width=10):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.cell = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids):
        return self.out(self.cell(self.embed(ids))[0])


def main():
    torch.manual_seed(46)
    net = Language().to("cuda")
    train_only_new(net.embed.weight, old=25)
    before = net.embed.weight.detach().clone()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    ids = torch.randint(0, 30, (3, 8), device="cuda")
    loss = nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    changed = (net.embed.weight.detach() - before).abs().sum(1).gt(0).sum().item()
    print("rows changed", changed)
    print("OK")


main()
