"""Read molecules out: the sum of their atoms' vectors, molecules of different sizes in one batch."""
import torch

DEVICE = "mps"


def readout(atoms, sizes):
    return torch.segment_reduce(atoms, "sum", lengths=sizes)


def main():
    torch.manual_seed(11)
    sizes = torch.tensor([3, 1, 4], device=DEVICE)
    atoms = torch.randn(8, 5, device=DEVICE, requires_grad=True)
    molecules = readout(atoms, sizes)
    molecules.pow(2).sum().backward()
    print("molecules", tuple(molecules.shape), tuple(atoms.grad.shape))
    print("OK")


if __name__ == "__main__":
    main()
