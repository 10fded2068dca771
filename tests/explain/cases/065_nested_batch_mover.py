"""Detection-like training on nested batches, moved to the device by a recursive helper."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def to_device(item, device):
    if isinstance(item, torch.Tensor):
        return item.to(device)
    if isinstance(item, dict):
        return {key: to_device(value, device) for key, value in item.items()}
    if isinstance(item, list):
        return [to_device(value, device) for value in item]
    return item


def sample():
    boxes = torch.rand(3, 4)
    return {"image": torch.rand(3, 8, 8), "target": {"boxes": boxes, "anchors": (boxes * 0.9, boxes * 1.1)}}


class BoxNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(0), nn.Linear(192, 12))

    def forward(self, image):
        return self.net(image).view(3, 4)


def loss_of(net, item):
    boxes = net(item["image"])
    target = item["target"]
    loss = F.l1_loss(boxes, target["boxes"])
    for anchor in target["anchors"]:
        loss = loss + 0.1 * torch.maximum(boxes, anchor).mean()
    return loss


torch.manual_seed(65)
net = BoxNet().to("cuda")
batch = to_device([sample(), sample()], "cuda")
loss = sum(loss_of(net, item) for item in batch)
loss.backward()
print("loss", loss.item())
print("OK")
