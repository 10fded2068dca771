"""Low-rank adapters as parametrizations of a finished model."""
import torch
from torch import nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    def __init__(self, rows, cols, rank):
        super().__init__()
        self.up = nn.Parameter(torch.zeros(rows, rank))
        self.down = nn.Parameter(torch.randn(rank, cols) / rank)

    def forward(self, weight):
        return weight + self.up @ self.down


def adapt(model, rank):
    for p in model.parameters():
        p.requires_grad_(False)
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", LowRank(*layer.weight.shape, rank).to(layer.weight.device))
    return [p for p in model.parameters() if p.requires_grad]


def main():
    torch.manual_seed(44)
    model = nn.Sequential(nn.Linear(6, 18), nn.Mish(), nn.Linear(18, 3)).to("cuda")
    trainable = adapt(model, rank=2)
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    for _ in range(3):
        x = torch.randn(16, 6, device="cuda")
        loss = nn.functional.mse_loss(model(x), x[:, :3])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("trainable", sum(p.numel() for p in trainable), "loss", round(loss.item(), 4))
    print("OK")


if __name__ == "__main__":
    main()
