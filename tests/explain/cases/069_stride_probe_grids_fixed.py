"""Detection head that finds its strides with a dry run when it is built."""
import torch
import torch.nn as nn


class Detect(nn.Module):
    def __init__(self, channels=(8, 16), size=32):
        super().__init__()
        self.downs = nn.ModuleList([nn.Conv2d(3, channels[0], 3, 4, 1), nn.Conv2d(channels[0], channels[1], 3, 2, 1)])
        self.preds = nn.ModuleList([nn.Conv2d(c, 4, 1) for c in channels])
        self.grids = [None] * len(channels)
        self.strides = [1.0] * len(channels)
        with torch.no_grad():
            probe = self(torch.zeros(1, 3, size, size))
        self.strides = [size / p.shape[1] for p in probe]

    @staticmethod
    def make_grid(side, device):
        ys, xs = torch.meshgrid(torch.arange(side, device=device), torch.arange(side, device=device), indexing="ij")
        return torch.stack((xs, ys), -1).float()

    def forward(self, x):
        boxes = []
        for i, (down, pred) in enumerate(zip(self.downs, self.preds)):
            x = down(x).relu()
            p = pred(x).permute(0, 2, 3, 1)
            if self.grids[i] is None or self.grids[i].shape[0] != p.shape[1] or self.grids[i].device != p.device:
                self.grids[i] = self.make_grid(p.shape[1], p.device)
            centre = (p[..., :2].sigmoid() + self.grids[i]) * self.strides[i]
            boxes.append(torch.cat((centre, p[..., 2:].exp()), -1))
        return boxes


def main():
    torch.manual_seed(3)
    head = Detect().to("cuda")
    images = torch.rand(2, 3, 32, 32, device="cuda")
    for level in head(images):
        print(tuple(level.shape), f"{level.mean().item():.3f}")
    print("OK")


main()
