"""Augment images with the shot noise of a sensor."""
import torch

DEVICE = torch.device("mps")


def shot_noise(images, photons):
    expected = images.clamp(0, 1) * photons
    counts = torch.poisson(expected)
    return counts / photons


def main():
    torch.manual_seed(5)
    images = torch.rand(4, 1, 8, 8, device=DEVICE)
    for photons in (10.0, 100.0):
        noisy = shot_noise(images, photons)
        print(photons, "mean", round(noisy.mean().item(), 2), noisy.device)
    print("OK")


if __name__ == "__main__":
    main()
