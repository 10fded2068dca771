"""Two towers, one for each kind of input, chosen by name."""
import torch
import torch.nn as nn


class TwoTower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.towers = nn.ModuleDict({
            "text": nn.Embedding(40, width),
            "image": nn.Conv2d(3, width, kernel_size=4, stride=4),
        })
        self.project = nn.Linear(width, width)

    def encode_image(self, pixels):
        features = self.towers["image"](pixels)
        return self.project(features.flatten(2).mean(-1))

    def encode_text(self, ids):
        return self.project(self.towers["text"](ids).mean(1))


def similarity(model, pixels, ids):
    left, right = model.encode_image(pixels), model.encode_text(ids)
    left = left / left.norm(dim=-1, keepdim=True)
    right = right / right.norm(dim=-1, keepdim=True)
    return left @ right.t()


torch.manual_seed(5)
model = TwoTower(width=8)
model = model.cuda()
pixels, ids = torch.rand(3, 3, 8, 8), torch.randint(0, 40, (3, 6))
table = similarity(model, pixels.cuda(), ids.cuda())
print("table", tuple(table.shape))
print("OK")
