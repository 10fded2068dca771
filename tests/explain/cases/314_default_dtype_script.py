"""Sets the default dtype for precision, as the tutorial for the CPU does."""
import torch
from torch import nn

torch.set_default_dtype(torch.float64)


class Burgers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x, t):
        return self.net(torch.stack([x, t], dim=1))


def main():
    device = torch.device("mps")
    torch.manual_seed(314)
    model = Burgers(12)
    model = model.to(device)
    x = torch.rand(20, device=device)
    t = torch.rand(20, device=device)
    print("u", tuple(model(x, t).shape))
    print("OK")


main()
