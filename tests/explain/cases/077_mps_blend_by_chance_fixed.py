"""Random colour inversion of a part of the batch, on an Apple GPU."""
import torch
from torch import nn


class RandomInvert(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, images):
        to_apply = torch.rand(len(images), device=images.device) < self.p
        inverted = 1.0 - images
        return torch.where(to_apply.view(-1, 1, 1, 1), inverted, images)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.augment = RandomInvert(0.5)
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.head = nn.Linear(6, 3)

    def forward(self, images):
        if self.training:
            images = self.augment(images)
        return self.head(self.features(images).amax(dim=(2, 3)))


def main():
    torch.manual_seed(11)
    device = "mps" if torch.backends.mps.is_available() else "cpu"
    net = Classifier().to(device)
    images = torch.rand(6, 1, 14, 14).to(device)
    print("eval", tuple(net.eval()(images).shape))
    print("train", tuple(net.train()(images).shape))
    print("OK")


main()
