"""U-Net cut over two cards: the way down on one, the way up on the other."""
import torch
from torch import nn

A, B = torch.device("cuda:0"), torch.device("cuda:1")


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(1, o), nn.SiLU())


class SplitUNet(nn.Module):
    def __init__(self, widths=(4, 8)):
        super().__init__()
        self.down = nn.ModuleList([block(1, widths[0]), block(widths[0], widths[1])]).to(A)
        self.middle = block(widths[1], widths[1]).to(B)
        self.up = nn.ModuleList([block(2 * widths[1], widths[0]), block(2 * widths[0], 1)]).to(B)

    def forward(self, x):
        skips, h = [], x.to(A)
        for down in self.down:
            h = down(h)
            skips.append(h)
            h = nn.functional.avg_pool2d(h, 2)
        h = self.middle(h.to(B))
        for up in self.up:
            h = nn.functional.interpolate(h, scale_factor=2)
            skip = skips.pop().to(h.device)
            h = up(torch.cat([h, skip], dim=1))
        return h


def main():
    torch.manual_seed(36)
    net = SplitUNet()
    noisy = torch.randn(2, 1, 8, 8)
    out = net(noisy)
    loss = (out - noisy.to(out.device)).abs().mean()
    loss.backward()
    print("on", out.device, "loss", round(loss.item(), 4))
    print("OK")


if __name__ == "__main__":
    main()
