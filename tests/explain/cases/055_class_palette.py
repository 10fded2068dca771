"""Segmentation of synthetic scenes; the result is painted with one colour for each class."""
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

COLOURS = {"sky": (90, 160, 230), "road": (110, 110, 110), "tree": (30, 120, 40)}
PALETTE = torch.tensor(list(COLOURS.values()), dtype=torch.float32) / 255


def segment(net, scene):
    logits = F.interpolate(net(scene), size=scene.shape[-2:], mode="bilinear", align_corners=False)
    return logits.argmax(dim=1)


def paint(classes):
    return F.embedding(classes, PALETTE).permute(0, 3, 1, 2)


def blend(scene, classes, share=0.5):
    return torch.lerp(scene, paint(classes), share)


def main():
    torch.manual_seed(55)
    net = nn.Conv2d(3, len(COLOURS), 3, stride=2, padding=1).to("cuda")
    scene = torch.rand(1, 3, 10, 14, device="cuda")
    with torch.no_grad():
        picture = blend(scene, segment(net, scene))
    print(Path("scene.png").stem, tuple(picture.shape))
    print("OK")


if __name__ == "__main__":
    main()
