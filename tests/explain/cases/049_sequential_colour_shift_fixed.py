"""A picture classifier in one nn.Sequential that begins with a colour correction."""
from collections import OrderedDict

import torch
import torch.nn as nn


class ColourShift(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))

    def forward(self, pictures):
        return pictures.sub(self.mean)


class View(nn.Module):
    def forward(self, x):
        return x.flatten(1)


model = nn.Sequential(
    OrderedDict(
        shift=ColourShift([0.48, 0.45, 0.41]),
        features=nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU()),
        pool=nn.AdaptiveAvgPool2d(2),
        view=View(),
        classify=nn.Linear(24, 5),
    )
)

if __name__ == "__main__":
    torch.manual_seed(49)
    model.to("cuda")
    pictures = torch.rand(4, 3, 11, 11).to("cuda")
    wanted = torch.tensor([0, 1, 4, 2], device="cuda")
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)(model(pictures), wanted)
    loss.backward()
    print("loss", loss.item())
    print("OK")
