"""Walkers on a grid write down the height they measured in every cell."""
import torch


class Walkers:
    moves = [(0, 1), (0, -1), (1, 0), (-1, 0)]

    def __init__(self, count, side, device):
        self.side = side
        self.at = torch.randint(0, side, (count, 2), device=device)
        self.heights = torch.full((side * side,), float("nan"), device=device)

    def step(self):
        moves = torch.tensor(self.moves, device=self.at.device)
        choice = torch.randint(0, len(moves), (len(self.at),), device=self.at.device)
        self.at = (self.at + moves[choice]).remainder(self.side)
        cell = self.at[:, 0] * self.side + self.at[:, 1]
        measured = self.at.float().sub(self.side / 2).square().sum(1)
        self.heights[cell] = measured

    def coverage(self):
        return 1 - self.heights.isnan().float().mean().item()


def walk(steps, device):
    walkers = Walkers(count=8, side=6, device=device)
    for _ in range(steps):
        walkers.step()
        yield walkers.coverage()


torch.manual_seed(51)
for number, share in enumerate(walk(4, "cuda")):
    print(number, f"{share:.2f}")
print("OK")
