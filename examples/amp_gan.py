"""Train a generative adversarial network on handwritten digits in mixed precision.

    python examples/amp_gan.py                  # the best device here
    python examples/amp_gan.py --device cpu --epochs 60

After Goodfellow et al., "Generative Adversarial Nets" (2014). The 1,797 scans come with scikit-learn. Under `autocast`
the matrix products run in 16 bits: float16 on CUDA and MPS, bfloat16 on the CPU and XPU. Gradients of float16 can be
too small to be told from zero, so on CUDA they are scaled. Noise is drawn on the device, so the closing numbers differ
between devices.

Letters in the shapes: N scans of a batch, P = 64 pixels, Z dimensions of the noise.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PIXELS, NOISE, HIDDEN = 64, 16, 128
HALF = {"cuda": torch.float16, "mps": torch.float16}  # by device type; elsewhere bfloat16


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    if torch.xpu.is_available():
        return "xpu"
    return "cpu"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a GAN on handwritten digits in mixed precision.")
    parser.add_argument("--device", default=best_device(), help="cpu, cuda, cuda:1, mps, xpu (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def draw_in_text(scans: torch.Tensor) -> str:
    """Scans (N, 64) of brightness -1..1, side by side, two characters to a pixel so that they look square."""
    shades = " .:-=+*#%@"
    levels = ((scans.clamp(-1, 1) + 1) / 2 * (len(shades) - 1)).round().long().view(-1, 8, 8).tolist()
    return "\n".join("   ".join("".join(2 * shades[v] for v in scan[row]) for scan in levels) for row in range(8))


def main() -> None:
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(args.seed)

    images = torch.as_tensor(load_digits().data, dtype=torch.float32) / 8 - 1  # (1797, P) in -1..1
    pin_memory = device.type not in ("cpu", "mps")  # MPS shares the host's memory and has none to pin
    dataset = TensorDataset(images)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True, pin_memory=pin_memory)

    generator = nn.Sequential(
        nn.Linear(NOISE, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS), nn.Tanh()
    ).to(device)
    critic = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.LeakyReLU(0.2), nn.Linear(HIDDEN, 1)).to(device)
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.5, 0.999))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.5, 0.999))

    half = HALF.get(device.type, torch.bfloat16)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    print(f"{len(dataset):,} digits to imitate, {str(half).removeprefix('torch.')} where it is safe, {device}")

    def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        losses = torch.zeros(2, device=device)  # of the critic and of the generator, summed where they are
        for (real,) in loader:
            real = real.to(device, non_blocking=True)  # (N, P)
            noise = torch.randn(len(real), NOISE, device=device)  # (N, Z)
            ones, zeros = noise.new_ones(len(real), 1), noise.new_zeros(len(real), 1)

            with torch.autocast(device.type, dtype=half):
                fake = generator(noise)  # (N, P)
                real_loss = F.binary_cross_entropy_with_logits(critic(real), ones)
                fake_loss = F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
            step(critic_optimizer, real_loss + fake_loss)

            with torch.autocast(device.type, dtype=half):
                generator_loss = F.binary_cross_entropy_with_logits(critic(fake), ones)
            step(generator_optimizer, generator_loss)
            losses += torch.stack([(real_loss + fake_loss).detach(), generator_loss.detach()])
        if epoch % 10 == 0 or epoch == args.epochs:
            critic_loss, generator_loss = (losses / len(loader)).tolist()
            print(
                f"epoch {epoch:3d}/{args.epochs}  critic {critic_loss:.3f}  generator {generator_loss:.3f}", flush=True
            )

    generator.eval()
    with torch.inference_mode():
        fakes = generator(torch.randn(1000, NOISE, device=device)).float().cpu()  # (1000, P)
    print(draw_in_text(fakes[:5]))
    apart = (fakes.mean(dim=0) - images.mean(dim=0)).abs().mean().item()
    print(f"mean scan {apart:.3f} from the real one after {time.perf_counter() - start:.1f} s on {device}")


if __name__ == "__main__":
    main()
