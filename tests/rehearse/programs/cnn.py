"""A convolutional network with batch normalisation learns the direction of stripes."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def stripes(n):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (n,), generator=generator)
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    waves = torch.stack([torch.sin(x), torch.sin(y), torch.sin(x + y), torch.sin(x - y)])
    images = waves[labels].unsqueeze(1) + 0.5 * torch.randn(n, 1, 16, 16, generator=generator)
    return TensorDataset(images, labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(16, 4)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def train(device, steps=16):
    torch.manual_seed(0)
    device = torch.device(device)
    loader = DataLoader(
        stripes(256),
        batch_size=32,
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
        pin_memory=device.type == "cuda",
    )
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=max(steps, 1) + 1)

    done = 0
    while done < steps:
        model.train()
        for images, labels in loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            done += 1
            if done == steps:
                break

        model.eval()
        correct = 0
        with torch.no_grad():
            for images, labels in loader:
                predicted = model(images.to(device)).argmax(dim=1)
                correct += (predicted == labels.to(device)).sum().item()
        print(f"step {done}: loss {loss.item():.4f}, accuracy {correct / 256:.2%}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
