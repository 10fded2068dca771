"""Coarse segmentation map upsampled with a fixed bilinear filter."""
import torch
from torch import nn
import torch.nn.functional as F


class BilinearUp(nn.Module):
    def __init__(self, channels, factor):
        super().__init__()
        self.channels, self.factor = channels, factor

    @property
    def kernel(self):
        size = 2 * self.factor - self.factor % 2
        centre = self.factor - 1 if size % 2 else self.factor - 0.5
        ramp = [1 - abs(i - centre) / self.factor for i in range(size)]
        ramp = torch.tensor(ramp)
        return (ramp[:, None] * ramp).expand(self.channels, 1, size, size).contiguous()

    def forward(self, x):
        return F.conv_transpose2d(x, self.kernel.to(x.device), stride=self.factor, padding=self.factor // 2, groups=self.channels)


class Segmenter(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, classes, 3, 2, 1))
        self.up = BilinearUp(classes, 4)

    def forward(self, image):
        return self.up(self.down(image))


def main():
    torch.manual_seed(22)
    net = Segmenter().cuda()
    image = torch.rand(2, 3, 16, 16).cuda()
    truth = torch.randint(0, 4, (2, 16, 16)).cuda()
    logits = net(image)[..., :16, :16]
    F.cross_entropy(logits, truth).backward()
    print("share", round((logits.argmax(1) == truth).float().mean().item(), 3))
    print("OK")


main()
