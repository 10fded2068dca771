"""Label assignment of a small detector: which pyramid level does each kept box come from?"""
import torch
from torch import nn

LEVELS = (8, 4, 2)


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.heads = nn.ModuleList(nn.Conv2d(8, 5, 1) for _ in LEVELS)

    def forward(self, image):
        h = self.stem(image).relu()
        maps = []
        for size, head in zip(LEVELS, self.heads):
            pooled = nn.functional.adaptive_avg_pool2d(h, size)
            maps.append(head(pooled).flatten(2).squeeze(0).T)
        return maps


def assign(maps, threshold):
    everything, from_layer = [], []
    for i, boxes in enumerate(maps):
        everything.append(boxes)
        from_layer.append(torch.ones(len(boxes)) * i)
    everything = torch.cat(everything)
    from_layer = torch.cat(from_layer)
    keep = everything[:, 4].sigmoid() > threshold
    boxes = everything[keep]
    from_layer = from_layer[keep]
    return boxes, from_layer


torch.manual_seed(2)
model = Pyramid().cuda().eval()
with torch.no_grad():
    boxes, layer = assign(model(torch.rand(1, 3, 32, 32).cuda()), 0.5)
for i in range(len(LEVELS)):
    print("level", i, "keeps", int((layer == i).sum()), "of", len(boxes))
print("OK")
