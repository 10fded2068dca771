"""A graph network, written with index_add and scatter, finds the two communities of a graph."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Convolution(nn.Module):
    """Sums the neighbours' messages, each divided by the square root of both degrees."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, edges):
        source, target = edges
        ones = torch.ones(edges.shape[1], device=x.device)
        degree = torch.zeros(len(x), device=x.device).scatter_add_(0, target, ones)
        weight = degree.clamp(min=1).rsqrt()
        messages = self.linear(x)[source] * (weight[source] * weight[target]).unsqueeze(1)
        return torch.zeros(len(x), messages.shape[1], device=x.device).index_add(0, target, messages) + self.bias


class Attention(nn.Module):
    """Weighs the neighbours' messages by a softmax over each node's incoming edges."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.source, self.target = nn.Linear(outputs, 1, bias=False), nn.Linear(outputs, 1, bias=False)

    def forward(self, x, edges):
        source, target = edges
        h = self.linear(x)
        score = F.leaky_relu(self.source(h)[source] + self.target(h)[target], 0.2).squeeze(1)
        highest = torch.full((len(x),), float("-inf"), device=x.device).scatter_reduce(
            0, target, score.detach(), "amax"
        )
        score = (score - highest[target]).exp()
        total = torch.zeros(len(x), device=x.device).scatter_add(0, target, score)
        messages = h[source] * (score / total[target]).unsqueeze(1)
        return torch.zeros_like(h).index_add_(0, target, messages)


class Network(nn.Module):
    def __init__(self, inputs, width=16):
        super().__init__()
        self.first, self.second = Convolution(inputs, width), Attention(width, 2)

    def forward(self, x, edges):
        return self.second(F.elu(self.first(x, edges)), edges)


def communities(n, generator):
    labels = torch.arange(n) % 2
    same = labels[:, None] == labels[None, :]
    edges = (torch.rand(n, n, generator=generator) < torch.where(same, 0.25, 0.02)).nonzero().t()
    loops = torch.arange(n).expand(2, n)
    return torch.cat((edges, loops), dim=1), labels


def train(device, steps=25, n=60):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    edges, labels = communities(n, generator)
    known = torch.randperm(n, generator=generator)[:10]
    x = torch.randn(n, 8, generator=generator)
    x, edges, labels, known = x.to(device), edges.to(device), labels.to(device), known.to(device)
    model = Network(8).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    for step in range(steps):
        logits = model(x, edges)
        loss = F.cross_entropy(logits[known], labels[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            accuracy = (logits.argmax(dim=1) == labels).float().mean()
            print(f"step {step}: loss {loss.item():.4f}, accuracy {accuracy.item():.2f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
