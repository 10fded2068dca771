"""A learner on a small board: only legal cells that were not visited may be chosen."""
import torch
from torch import nn

CELLS = 16


class Game:
    def __init__(self):
        self.at = 0

    def legal(self):
        row, col = divmod(self.at, 4)
        cells = torch.arange(CELLS)
        return (cells // 4 == row) | (cells % 4 == col)

    def move(self, cell):
        self.at = cell


class Player:
    def __init__(self, net, device):
        self.game, self.net, self.device = Game(), net.to(device), device
        self.visited = torch.zeros(CELLS, dtype=torch.bool, device=device)

    def candidates(self):
        legal = self.game.legal()
        return torch.logical_and(legal, ~self.visited)

    def turn(self):
        here = nn.functional.one_hot(torch.tensor(self.game.at, device=self.device), CELLS).float()
        value = self.net(here).masked_fill(~self.candidates(), -1e9)
        cell = int(value.argmax())
        self.visited[cell] = True
        self.game.move(cell)
        return cell


def main():
    torch.manual_seed(32)
    player = Player(nn.Sequential(nn.Linear(CELLS, 32), nn.Tanh(), nn.Linear(32, CELLS)), "cuda")
    print("path", [player.turn() for _ in range(5)])
    print("OK")


main()
