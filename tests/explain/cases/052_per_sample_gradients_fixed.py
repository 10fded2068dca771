"""Gradient norm of every sample on its own, with torch.func."""
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(52)
device = torch.device("cuda")
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
weights = {name: p.detach() for name, p in net.named_parameters()}
task_scale = torch.tensor([1.0, 0.5, 2.0], device=device)


def loss(weights, x, y):
    out = functional_call(net, weights, (x.unsqueeze(0),)).squeeze(0)
    return (task_scale * (out - y).square()).sum()


x = torch.randn(7, 4, device=device)
y = torch.randn(7, 3, device=device)
each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
norms = torch.stack([g.flatten(1).square().sum(1) for g in each.values()]).sum(0).sqrt()
print("norms", [round(n, 2) for n in norms.tolist()])
print("OK")
