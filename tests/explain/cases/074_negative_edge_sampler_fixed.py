"""Link prediction with freshly drawn negative edges in every step."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits


@dataclass
class Graph:
    x: torch.Tensor
    edges: torch.Tensor

    def to(self, device):
        return Graph(self.x.to(device), self.edges.to(device))


class LinkScorer(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, graph, pairs):
        z = self.encode(graph.x)
        return (z[pairs[0]] * z[pairs[1]]).sum(-1)


def draw_negatives(count, nodes, device):
    return torch.randint(0, nodes, (2, count), device=device)


def step(model, graph, optimizer):
    positive = graph.edges
    negative = draw_negatives(positive.shape[1], len(graph.x), positive.device)
    pairs = torch.cat([positive, negative], dim=-1)
    truth = torch.zeros(pairs.shape[1], device=graph.x.device)
    truth[: positive.shape[1]] = 1.0
    loss = binary_cross_entropy_with_logits(model(graph, pairs), truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss)


def main():
    torch.manual_seed(8)
    graph = Graph(torch.randn(20, 5), torch.randint(0, 20, (2, 40))).to("cuda")
    model = LinkScorer(5, 12).to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    print([round(step(model, graph, optimizer), 4) for _ in range(3)])
    print("OK")


main()
