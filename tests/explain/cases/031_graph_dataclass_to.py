"""Message passing on a small weighted graph held in a dataclass."""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Graph:
    nodes: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    strength: torch.Tensor

    def to(self, device) -> Graph:
        return Graph(self.nodes.to(device), self.source.to(device), self.target.to(device), self.strength)

    @classmethod
    def random(cls, nodes, edges, features):
        source = torch.randint(nodes, (edges,))
        target = torch.randint(nodes, (edges,))
        return cls(torch.randn(nodes, features), source, target, torch.rand(edges, 1))


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.send = nn.Linear(size, size)
        self.keep = nn.Linear(size, size)

    def forward(self, graph):
        message = self.send(graph.nodes)[graph.source]
        message = torch.mul(message, graph.strength)
        arrived = torch.zeros_like(graph.nodes).index_add_(0, graph.target, message)
        return torch.relu(self.keep(graph.nodes) + arrived)


torch.manual_seed(31)
device = torch.device("cuda")
graph = Graph.random(nodes=6, edges=14, features=5).to(device)
layer = Layer(5).to(device)
print("out", layer(graph).sum().item())
print("OK")
