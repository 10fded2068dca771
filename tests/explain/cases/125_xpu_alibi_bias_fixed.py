"""Attention with linear distance biases on an Intel GPU."""
import torch
from torch import nn


class AlibiAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def alibi(self, length):
        slopes = torch.tensor([2.0 ** (-8 * (h + 1) / self.heads) for h in range(self.heads)])
        steps = torch.arange(length)
        gap = (steps[None] - steps[:, None]).clamp(max=0).float()
        return slopes[:, None, None] * gap

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).flatten(1, 2)
        alibi = self.alibi(length).repeat(batch, 1, 1).to(x.device)
        score = torch.baddbmm(alibi, q, k.mT, alpha=q.shape[-1] ** -0.5)
        mixed = torch.bmm(score.softmax(-1), v).view(batch, self.heads, length, -1)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def main():
    torch.manual_seed(59)
    layer = AlibiAttention(16, 4).to("xpu")
    x = torch.randn(2, 6, 16, device="xpu", requires_grad=True)
    y = layer(x)
    y.square().mean().backward()
    print("gradient", round(x.grad.norm().item(), 5))
    print("OK")


main()
