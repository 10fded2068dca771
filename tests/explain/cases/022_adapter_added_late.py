"""Adds low-rank adapters to the linear layers of a network that is already placed."""
import torch
import torch.nn as nn


class LowRank(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x @ self.down.t()) @ self.up.t()


def adapt(model, rank=2):
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, LowRank(child, rank))
        else:
            adapt(child, rank)
    return model


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 12)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(12, 4))

    def forward(self, x):
        return self.body(self.inner(x))


def main():
    torch.manual_seed(22)
    device = torch.device("cuda")
    model = Backbone().to(device)
    adapt(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    x = torch.randn(9, 6, device=device)
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    print("trained", len(trainable), "loss", loss.item())
    print("OK")


main()
