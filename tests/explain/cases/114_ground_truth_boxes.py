"""Matching of predicted boxes with ground truth kept in nested records."""
import torch
from torch import nn


class Boxes:
    def __init__(self, corners):
        self.corners = corners

    def to(self, device):
        return Boxes(self.corners.to(device))


class Instances:
    def __init__(self, **fields):
        self.__dict__.update(fields)

    def to(self, device):
        moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in vars(self).items()}
        return Instances(**moved)


def iou(predicted, target):
    top = torch.maximum(predicted[:, None, :2], target.boxes.corners[None, :, :2])
    low = torch.minimum(predicted[:, None, 2:], target.boxes.corners[None, :, 2:])
    both = (low - top).clamp(min=0).prod(-1)
    area = [(b[:, 2:] - b[:, :2]).prod(-1) for b in (predicted, target.boxes.corners)]
    return both / (area[0][:, None] + area[1][None] - both)


def random_boxes(count):
    top = torch.rand(count, 2) * 0.6
    return torch.cat([top, top + 0.1 + 0.3 * torch.rand(count, 2)], dim=1)


def main():
    torch.manual_seed(48)
    device = torch.device("cuda")
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    target = Instances(classes=torch.tensor([1, 0, 2]), boxes=Boxes(random_boxes(3)), size=(64, 64)).to(device)
    predicted = random_boxes(6).to(device)
    predicted = predicted + 0.01 * net(predicted)
    overlap, best = iou(predicted, target).max(dim=1)
    print("classes", target.classes[best].tolist(), "mean overlap", round(overlap.mean().item(), 3))
    print("OK")


main()
