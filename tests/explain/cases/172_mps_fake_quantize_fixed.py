"""Train a layer for 4 bits: its weights are rounded in the forward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "mps"


class Rounded(nn.Linear):
    def forward(self, x):
        step = 0.05
        y = self.weight.clamp((-8 - 0) * step, (7 - 0) * step)
        weight = y + ((y / step).round() * step - y).detach()
        return F.linear(x, weight, self.bias)


def main():
    torch.manual_seed(13)
    layer = Rounded(6, 3).to(DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    loss = layer(torch.randn(16, 6, device=DEVICE)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
