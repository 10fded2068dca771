"""Forces as the gradient of an energy."""
import torch
from torch.func import grad


class ForceField:
    def __init__(self, charges):
        self.charges = torch.tensor(charges, device="cuda")
        self.spring = 0.5

    def energy(self, positions):
        count = len(positions)
        i, j = torch.triu_indices(count, count, 1, device=positions.device)
        gap = (positions[i] - positions[j]).norm(dim=-1) + 1e-3
        table = 1.0 / torch.ones(count, count, device=positions.device).index_put((i, j), gap)
        coulomb = torch.mv(table.triu(1), self.charges).sum()
        return coulomb + self.spring * positions.square().sum()

    def forces(self, positions):
        return -grad(self.energy)(positions)


def relax(field, positions, steps=5, rate=0.02):
    for _ in range(steps):
        positions = positions + rate * field.forces(positions)
    return positions


def main():
    torch.manual_seed(43)
    field = ForceField([1.0, -1.0, 0.5, -0.5])
    start = torch.randn(4, 3, device="cuda")
    end = relax(field, start)
    print("energy", round(field.energy(end).item(), 4))
    print("OK")


main()
