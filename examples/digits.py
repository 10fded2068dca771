"""Train a small convolutional network to read handwritten digits.

    python examples/digits.py                  # the best device here
    python examples/digits.py --device cpu

The 1,797 scans of 8x8 pixels come with scikit-learn. Ends with the test accuracy, and fails below 95%.

Letters in the shapes: N scans of a batch, C channels, H and W pixels.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TARGET = 0.95


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    if torch.xpu.is_available():
        return "xpu"
    return "cpu"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small convolutional network on handwritten digits.")
    parser.add_argument("--device", default=best_device(), help="cpu, cuda, cuda:1, mps, xpu (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=0, help="processes that load batches (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def load_data() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)  # (1797, 64) float64 in 0..16, (1797,)
    images_train, images_test, labels_train, labels_test = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )

    def to_dataset(images: np.ndarray, labels: np.ndarray) -> TensorDataset:
        # float32 before anything moves: MPS has no float64.
        pixels = torch.as_tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16  # (N, C=1, H=8, W=8) in 0..1
        return TensorDataset(pixels, torch.as_tensor(labels, dtype=torch.long))

    return to_dataset(images_train, labels_train), to_dataset(images_test, labels_test)


class DigitNet(nn.Module):
    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (N, width, 4, 4)
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),  # (N, 2 * width, 2, 2)
        )
        self.head = nn.Linear(2 * width * 2 * 2, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)  # (N, 1, 8, 8) -> (N, 2 * width, 2, 2)
        return self.head(x.flatten(1))  # (N, classes)


def train_epoch(
    model: nn.Module,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    device: torch.device,
) -> float:
    model.train()
    total = torch.zeros((), device=device)  # summed on the device: reading each loss would make the host wait each step
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)

        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()

        total += loss.detach() * len(images)
    return total.item() / len(loader.dataset)


@torch.inference_mode()
def count_correct(model: nn.Module, loader: DataLoader, device: torch.device) -> int:
    model.eval()
    correct = torch.zeros((), dtype=torch.long, device=device)
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        correct += (model(images).argmax(dim=1) == labels).sum()
    return int(correct.item())


def main() -> None:
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(args.seed)

    train_set, test_set = load_data()
    # Pinned memory lets `.to(..., non_blocking=True)` return at once. MPS shares the host's memory and has none to pin.
    loading = {"num_workers": args.workers, "pin_memory": device.type not in ("cpu", "mps")}
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, **loading)
    test_loader = DataLoader(test_set, batch_size=256, **loading)

    model = DigitNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, epochs=args.epochs, steps_per_epoch=len(train_loader)
    )

    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(train_set):,} digits to learn from, {len(test_set)} to test on, {parameters:,} parameters, {device}")

    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        loss = train_epoch(model, train_loader, optimizer, scheduler, device)
        accuracy = count_correct(model, test_loader, device) / len(test_set)
        print(f"epoch {epoch:2d}/{args.epochs}  loss {loss:.4f}  test accuracy {accuracy:6.2%}", flush=True)

    print(f"test accuracy {accuracy:.2%} after {time.perf_counter() - start:.1f} s on {device}")
    if accuracy < TARGET:
        raise SystemExit(f"below the {TARGET:.0%} this network reaches in 8 epochs")


if __name__ == "__main__":
    main()
