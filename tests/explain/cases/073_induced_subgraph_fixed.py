"""Message passing on an induced subgraph."""
import torch
from torch import nn

DEV = "cuda"


def ring(n):
    a = torch.arange(n)
    return torch.stack([torch.cat([a, (a + 1) % n]), torch.cat([(a + 1) % n, a])])


def subgraph(chosen, edges, num_nodes):
    """Keeps the edges both of whose ends are among the chosen nodes."""
    member = torch.zeros(num_nodes, dtype=torch.bool, device=edges.device)
    member[chosen.tolist()] = True
    keep = member[edges[0]] & member[edges[1]]
    return edges[:, keep]


class MeanConv(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.own = nn.Linear(wide, wide)
        self.other = nn.Linear(wide, wide)

    def forward(self, x, edges):
        total = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])
        return torch.tanh(self.own(x) + self.other(total))


torch.manual_seed(7)
edges = ring(12).to(DEV)
x = torch.randn(12, 6, device=DEV)
conv = MeanConv(6).to(DEV)
chosen = torch.topk(x.norm(dim=1), 7).indices
small = subgraph(chosen, edges, num_nodes=12)
print("edges kept", small.shape[1])
print("mean", round(conv(x, small).mean().item(), 4))
print("OK")
