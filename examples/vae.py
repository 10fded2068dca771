"""Train a variational autoencoder on handwritten digits and draw new ones.

    python examples/vae.py                  # the best device here
    python examples/vae.py --device cpu --epochs 60

After Kingma and Welling, "Auto-Encoding Variational Bayes" (2013). The 1,797 scans come with scikit-learn. The noise
of the reparameterization is drawn on the device, so each kind of device draws its own: losses are close, not equal.

Letters in the shapes: N scans of a batch, P = 64 pixels, Z latent dimensions.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    if torch.xpu.is_available():
        return "xpu"
    return "cpu"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a variational autoencoder on handwritten digits.")
    parser.add_argument("--device", default=best_device(), help="cpu, cuda, cuda:1, mps, xpu (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--latent", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class VAE(nn.Module):
    def __init__(self, latent: int, pixels: int = 64, hidden: int = 128) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.SiLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, pixels))

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)  # (N, P) -> (N, Z), (N, Z)
        return mean, log_variance

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encode(x)
        noise = torch.randn_like(mean)  # (N, Z), on the device of `mean`
        z = mean + noise * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance  # (N, P) logits, (N, Z), (N, Z)

    def draw(self, count: int, device: torch.device) -> torch.Tensor:
        z = torch.randn(count, self.latent, device=device)
        return self.decoder(z).sigmoid()  # (count, P)


def losses_of(model: VAE, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Reconstruction error and divergence from the prior: nats per scan."""
    logits, mean, log_variance = model(x)
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(dim=1)  # (N,)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1)  # (N,)
    return reconstruction.mean(), divergence.mean()


@torch.inference_mode()
def evaluate(model: VAE, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    model.eval()
    total = torch.zeros(2, device=device)
    for (x,) in loader:
        reconstruction, divergence = losses_of(model, x.to(device, non_blocking=True))
        total += torch.stack([reconstruction, divergence]) * len(x)
    reconstruction, divergence = (total / len(loader.dataset)).tolist()
    return reconstruction, divergence


def draw_in_text(scans: torch.Tensor) -> str:
    """Scans (N, 64) of brightness 0..1, side by side, two characters to a pixel so that they look square."""
    shades = " .:-=+*#%@"
    levels = (scans.clamp(0, 1) * (len(shades) - 1)).round().long().view(-1, 8, 8).tolist()
    return "\n".join("   ".join("".join(2 * shades[v] for v in scan[row]) for scan in levels) for row in range(8))


def main() -> None:
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(args.seed)

    images = torch.as_tensor(load_digits().data, dtype=torch.float32) / 16  # (1797, P) in 0..1
    train_set, test_set = random_split(TensorDataset(images), [0.9, 0.1])
    pin_memory = device.type not in ("cpu", "mps")  # MPS shares the host's memory and has none to pin
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, pin_memory=pin_memory)
    test_loader = DataLoader(test_set, batch_size=256, pin_memory=pin_memory)

    model = VAE(args.latent).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    sizes = f"{len(train_set):,} digits to learn from, {len(test_set)} to test on, {args.latent} latent dimensions"
    print(f"{sizes}, {device}")

    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        model.train()
        for (x,) in train_loader:
            reconstruction, divergence = losses_of(model, x.to(device, non_blocking=True))
            loss = reconstruction + divergence
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        if epoch % 10 == 0 or epoch == args.epochs:
            reconstruction, divergence = evaluate(model, test_loader, device)
            error = f"reconstruction {reconstruction:.2f}  divergence {divergence:.2f}"
            print(f"epoch {epoch:3d}/{args.epochs}  {error}", flush=True)

    with torch.inference_mode():
        scans = model.draw(5, device)
    print(draw_in_text(scans.cpu()))
    print(f"test loss {reconstruction + divergence:.2f} nats after {time.perf_counter() - start:.1f} s on {device}")


if __name__ == "__main__":
    main()
