"""A small U-Net finds discs, with a Dice loss; images and masks are flipped at random."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = block(1, 8), block(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Sequential(block(16, 8), nn.Conv2d(8, 1, 1))

    def forward(self, x):
        high = self.down1(x)
        low = self.down2(F.max_pool2d(high, 2))
        coarse = F.interpolate(low.mean(dim=1, keepdim=True), scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(torch.cat((high, self.up(low)), dim=1)) + coarse


def discs(n, generator):
    centre = torch.randint(3, 13, (n, 2, 1, 1), generator=generator)
    y, x = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    masks = (((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2) < 12).float().unsqueeze(1)
    return masks + 0.5 * torch.randn(n, 1, 16, 16, generator=generator), masks


def dice(logits, masks):
    p = logits.sigmoid()
    overlap = (p * masks).sum(dim=(1, 2, 3))
    return (1 - (2 * overlap + 1) / (p.sum(dim=(1, 2, 3)) + masks.sum(dim=(1, 2, 3)) + 1)).mean()


def train(device, steps=10):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = UNet().to(device, memory_format=torch.channels_last)
    weight = torch.tensor([3.0], device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(steps):
        images, masks = discs(8, generator)
        images = images.to(device, memory_format=torch.channels_last)
        masks = masks.to(device)
        flip = (torch.rand(8, 1, 1, 1, generator=generator) < 0.5).to(device)
        images, masks = torch.where(flip, images.flip(3), images), torch.where(flip, masks.flip(3), masks)
        logits = model(images)
        loss = F.binary_cross_entropy_with_logits(logits, masks, pos_weight=weight) + dice(logits, masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
