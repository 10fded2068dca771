"""A spatial pyramid on top of a convolutional trunk."""
import torch
import torch.nn as nn

DEVICE = torch.device("mps")


class Pyramid(nn.Module):
    def __init__(self, levels=(1, 7, 3)):
        super().__init__()
        self.trunk = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.pools = nn.ModuleList(nn.AdaptiveAvgPool2d(n) for n in levels)

    def forward(self, image):
        maps = torch.relu(self.trunk(image))
        levels = []
        for pool in self.pools:
            pooled = pool(maps)
            levels.append(pooled.flatten(1))
        return torch.cat(levels, dim=1)


def main():
    torch.manual_seed(3)
    model = Pyramid().to(DEVICE)
    out = model(torch.rand(2, 3, 14, 14, device=DEVICE))
    print("pyramid", tuple(out.shape))
    print("OK")


if __name__ == "__main__":
    main()
