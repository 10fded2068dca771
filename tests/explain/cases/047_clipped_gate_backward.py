"""A quantised activation with a hand-written gradient."""
import torch
from torch import nn


class Quantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        ctx.levels = levels
        return (x.clamp(0, 1) * levels).round() / levels

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        slope = torch.linspace(1.0, 0.5, x.shape[-1])
        inside = (x > 0) & (x < 1)
        return grad * inside * slope, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 10)
        self.b = nn.Linear(10, 1)

    def forward(self, x):
        return self.b(Quantise.apply(self.a(x), 4))


def main():
    torch.manual_seed(47)
    device = torch.device("cuda")
    net = Net().to(device)
    x = torch.rand(6, 4).to(device)
    with torch.no_grad():
        print("before", net(x).mean().item())
    loss = net(x).square().mean()
    loss.backward()
    print("grad", net.a.weight.grad.norm().item())
    print("OK")


if __name__ == "__main__":
    main()
