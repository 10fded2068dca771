"""Two rounds of message passing over a sparse graph."""
import torch
import torch.nn as nn

DEVICE = torch.device("mps")


class Propagate(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, adjacency, h):
        mixed = adjacency.to_sparse_csr() @ h
        return torch.relu(self.mix(mixed))


def ring(nodes):
    adjacency = torch.zeros(nodes, nodes, device=DEVICE)
    index = torch.arange(nodes, device=DEVICE)
    adjacency[index, (index + 1) % nodes] = 1.0
    return adjacency


def main():
    torch.manual_seed(7)
    model = Propagate().to(DEVICE)
    graph = ring(12)
    h = torch.randn(12, 8, device=DEVICE)
    for _ in range(2):
        h = model(graph, h)
    print("nodes", tuple(h.shape))
    print("OK")


if __name__ == "__main__":
    main()
