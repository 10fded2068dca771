"""Vision encoder with fractional patch coordinates for images of any size."""
import torch
import torch.nn.functional as F
from torch import nn


class PatchEmbeddings(nn.Module):
    """Cuts an image in patches and adds a learned code for the bucket they fall in."""

    def __init__(self, side=8, patch=4, width=16):
        super().__init__()
        self.side, self.patch = side, patch
        self.project = nn.Conv2d(3, width, patch, patch)
        self.codes = nn.Embedding(side * side, width)

    def forward(self, pixels):
        x = self.project(pixels)
        rows, cols = x.shape[-2:]
        boundaries = torch.arange(1 / self.side, 1.0, 1 / self.side, device=pixels.device)
        fractions_h = torch.arange(rows, device=pixels.device) / rows
        fractions_w = torch.arange(cols, device=pixels.device) / cols
        bucket_h = torch.bucketize(fractions_h, boundaries, right=True)
        bucket_w = torch.bucketize(fractions_w, boundaries, right=True)
        position_ids = (bucket_h[:, None] * self.side + bucket_w).flatten()
        return x.flatten(2).transpose(1, 2) + self.codes(position_ids)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = PatchEmbeddings()
        self.norm = nn.LayerNorm(16)

    def forward(self, pixels):
        return self.norm(self.patches(pixels)).mean(1)


def similarity(encoder, first, second):
    with torch.inference_mode():
        return F.cosine_similarity(encoder(first), encoder(second)).item()


if __name__ == "__main__":
    torch.manual_seed(4)
    encoder = Encoder().to("cuda")
    wide, tall = torch.rand(1, 3, 16, 24, device="cuda"), torch.rand(1, 3, 32, 12, device="cuda")
    print("similarity", round(similarity(encoder, wide, tall), 4))
    print("OK")
