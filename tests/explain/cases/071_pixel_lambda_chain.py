"""Augmentation on the accelerator: pictures move first, the chain of steps runs there."""
import torch
from torch import nn


def build_chain(device):
    shift = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    return [
        lambda img: img.flip(-1) if torch.rand(()) < 0.5 else img,
        lambda img: img.roll(int(torch.randint(0, 3, ())), dims=-2),
        lambda img: img.sub_(shift),
        lambda img: img / 0.225,
    ]


def augment(pictures, chain):
    out = []
    for picture in pictures.unbind(0):
        for step in chain:
            picture = step(picture)
        out.append(picture)
    return torch.stack(out)


def main():
    torch.manual_seed(5)
    device = torch.device("cuda:0")
    chain = build_chain(device)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(3):
        pictures = torch.rand(4, 3, 12, 12).to(device)
        labels = torch.randint(0, 2, (4,)).to(device)
        loss = nn.functional.cross_entropy(net(augment(pictures, chain)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4f}")
    print("OK")


main()
