"""Quantisation-aware training with a straight-through estimator."""
import torch
from torch import nn
from torch.autograd import Function

LEVELS = torch.linspace(-1.0, 1.0, 9)


class Quantise(Function):
    @staticmethod
    def forward(ctx, x, levels):
        slot = torch.searchsorted(levels, x.clamp(-0.99, 0.99).contiguous())
        ctx.save_for_backward(x)
        return levels[slot]

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1), None


class QuantLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, Quantise.apply(self.weight, LEVELS), self.bias)


def main():
    torch.manual_seed(41)
    net = nn.Sequential(QuantLinear(8, 16), nn.Hardtanh(), QuantLinear(16, 2)).to("cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(24, 8, device="cuda")
        loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 4))
    print("OK")


main()
