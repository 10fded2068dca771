"""Projects 3-D points into an image with a pinhole camera."""
from dataclasses import dataclass

import torch


@dataclass
class Camera:
    focal: float
    width: int
    height: int

    def matrix(self, device):
        return torch.tensor(
            [[self.focal, 0.0, self.width / 2], [0.0, self.focal, self.height / 2], [0.0, 0.0, 1.0]],
            device=device,
        )

    def project(self, points):
        k = self.matrix(points.device)
        image = torch.einsum("ij,bnj->bni", k, points)
        return image[..., :2] / image[..., 2:].clamp(min=1e-3)


def reprojection_error(camera, points, seen):
    return (camera.project(points) - seen).norm(dim=-1).mean()


def fit(camera, seen, steps, device):
    points = torch.rand(*seen.shape[:2], 3, device=device) + torch.ones(3, device=device)
    points.requires_grad_()
    optimizer = torch.optim.Adam([points], lr=0.02)
    for _ in range(steps):
        error = reprojection_error(camera, points, seen)
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return error.item()


torch.manual_seed(9)
seen = torch.rand(2, 6, 2, device="cuda") * 64
print("error", fit(Camera(focal=50.0, width=64, height=64), seen, steps=3, device="cuda"))
print("OK")
