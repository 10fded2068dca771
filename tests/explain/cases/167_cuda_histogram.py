"""Log how the activations of a network are distributed."""
import torch
import torch.nn as nn

DEVICE = "cuda"


def distribution(activations, bins=8):
    counts, edges = torch.histogram(activations, bins, range=(-1.0, 1.0))
    return counts / counts.sum(), edges


def main():
    torch.manual_seed(8)
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh()).to(DEVICE)
    with torch.no_grad():
        activations = net(torch.randn(64, 4, device=DEVICE))
    density, edges = distribution(activations)
    print("density", round(density.sum().item(), 3), len(edges))
    print("OK")


if __name__ == "__main__":
    main()
