"""Train one network whose halves live on two devices.

    python examples/model_parallel.py --device cuda      # cuda:0 and cuda:1
    python examples/model_parallel.py --device cpu       # no second device: both halves on one

Activations cross from the first device to the second; labels are needed on the second only. A batch is cut into pieces,
so that the first device can work on the next piece while the second finishes the last one. The 1,797 scans come with
scikit-learn.

Letters in the shapes: N scans of a piece, P = 64 pixels, S width of a layer.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    if torch.xpu.is_available():
        return "xpu"
    return "cpu"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train one network whose halves live on two devices.")
    parser.add_argument("--device", default=best_device(), help="cpu, cuda, mps or xpu (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--pieces", type=int, default=4, help="of a batch, in flight one after another")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def two_devices(device: torch.device) -> tuple[torch.device, torch.device]:
    """The first two devices of this type, or the same one twice where there is no second."""
    if device.type == "cpu" or torch.accelerator.device_count() < 2:
        return device, device
    return torch.device(device.type, 0), torch.device(device.type, 1)


class TwoHalves(nn.Module):
    def __init__(self, first: torch.device, second: torch.device, width: int = 128) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU()).to(first)
        self.decoder = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10))
        self.decoder.to(second)

    def forward(self, x: torch.Tensor, pieces: int) -> torch.Tensor:
        logits = []
        for piece in x.to(self.first).chunk(pieces):  # (N, P)
            hidden = self.encoder(piece).to(self.second, non_blocking=True)  # (N, S), across
            logits.append(self.decoder(hidden))  # (N, 10)
        return torch.cat(logits)


def main() -> None:
    args = parse_args()
    first, second = two_devices(torch.device(args.device))
    torch.manual_seed(args.seed)

    digits = load_digits()
    order = torch.randperm(len(digits.data))  # on the CPU
    images = torch.as_tensor(digits.data, dtype=torch.float32)[order] / 16  # (1797, P)
    labels = torch.as_tensor(digits.target, dtype=torch.long)[order]  # (1797,)
    train, test = slice(0, 1437), slice(1437, None)

    model = TwoHalves(first, second)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    print(f"first half on {first}, second half on {second}")

    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        rows = torch.randint(1437, (args.batch_size,))  # drawn on the CPU, as the scans are there
        logits = model(images[train][rows], args.pieces)
        loss = F.cross_entropy(logits, labels[train][rows].to(second))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == args.steps:
            print(f"step {step:3d}/{args.steps}  loss {loss.item():.4f}", flush=True)

    model.eval()
    with torch.inference_mode():
        correct = (model(images[test], args.pieces).argmax(dim=1) == labels[test].to(second)).sum().item()
    total = len(labels[test])
    print(f"test accuracy {correct / total:.2%} after {time.perf_counter() - start:.1f} s on {first} and {second}")


if __name__ == "__main__":
    main()
