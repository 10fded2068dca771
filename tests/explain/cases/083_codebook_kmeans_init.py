"""Vector quantiser whose codebook starts from the latents of the first batch."""
import torch
from torch import nn


class Quantizer(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(size, width))
        self.started = False

    def start(self, latents):
        """Three rounds of k-means, on the host."""
        points = latents.detach().cpu()
        centroids = points[torch.randperm(len(points))[: len(self.codes)]].clone()
        for _ in range(3):
            owner = (points[:, None] - centroids).square().sum(-1).argmin(1)
            for k in range(len(centroids)):
                if (owner == k).any():
                    centroids[k] = points[owner == k].mean(0)
        self.codes.data = centroids
        self.started = True

    def forward(self, latents):
        if not self.started:
            self.start(latents)
        nearest = torch.cdist(latents, self.codes).argmin(dim=1)
        hard = nn.functional.embedding(nearest, self.codes)
        return latents + (hard - latents).detach(), (hard - latents.detach()).square().mean()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(10, 4), nn.Linear(4, 10)
        self.quantize = Quantizer(8, 4)

    def forward(self, x):
        z, commit = self.quantize(self.encode(x))
        return (self.decode(z) - x).square().mean() + 0.25 * commit


if __name__ == "__main__":
    torch.manual_seed(17)
    model = Model().to("cuda")
    loss = model(torch.randn(40, 10, device="cuda"))
    loss.backward()
    print("loss", round(loss.item(), 4))
    print("OK")
