"""Converts pictures to grey with fixed weights before classifying them, on a Mac."""
import torch
from torch import nn


class Grey(nn.Module):
    WEIGHTS = torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)

    def forward(self, picture):
        return (picture * self.WEIGHTS.to(picture.device)).sum(1, keepdim=True)


class GreyNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.grey = Grey()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4, classes)

    def forward(self, picture):
        h = torch.relu(self.conv(self.grey(picture)))
        return self.head(h.mean((2, 3)))


def main(name="mps"):
    torch.manual_seed(64)
    device = torch.device(name)
    net = GreyNet(classes=3).to(device)
    logits = net(torch.rand(2, 3, 7, 7, device=device))
    print("classes", logits.argmax(1).tolist())
    print("OK")


main()
