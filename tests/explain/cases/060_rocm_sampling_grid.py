"""Turns feature maps by a learned angle, on an AMD card."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Turn(nn.Module):
    def __init__(self):
        super().__init__()
        self.angle = nn.Linear(4, 1)

    @staticmethod
    def mesh(h, w):
        sides = torch.linspace(-1, 1, h), torch.linspace(-1, 1, w)
        ys, xs = torch.meshgrid(*sides, indexing="ij")
        return torch.stack([xs, ys], dim=-1)

    def forward(self, maps):
        a = self.angle(maps.mean(dim=(2, 3))).squeeze(1)
        turn = torch.stack([a.cos(), -a.sin(), a.sin(), a.cos()], dim=-1).view(-1, 2, 2)
        mesh = self.mesh(*maps.shape[-2:])
        grid = torch.einsum("bij,hwj->bhwi", turn, mesh)
        return F.grid_sample(maps, grid, align_corners=True)


torch.manual_seed(60)
device = torch.device("cuda")
print("hip build" if torch.version.hip else "other build")
turn = Turn().to(device)
maps = torch.rand(2, 4, 6, 6, device=device)
loss = (turn(maps) - maps.flip(3)).pow(2).mean()
loss.backward()
print("loss", loss.item())
print("OK")
