"""Training is stopped in the middle, saved, and gone on with from the file."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn


class Trainer:
    def __init__(self, device):
        torch.manual_seed(0)
        self.device = device
        self.generator = torch.Generator().manual_seed(1)
        self.model = nn.Sequential(nn.Linear(5, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 1)).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2, amsgrad=True)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=4, gamma=0.5)
        self.step = 0
        self.best = torch.tensor(float("inf"), device=device)

    def run(self, until):
        while self.step < until:
            x = torch.randn(32, 5, generator=self.generator)
            y = x.abs().sum(dim=1, keepdim=True)
            x, y = x.to(self.device), y.to(self.device)
            loss = (self.model(x) - y).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.best = torch.minimum(self.best, loss.detach())
            self.step += 1

    def save(self, path):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "generator": self.generator.get_state(),
            "step": self.step,
            "best": self.best,
        }
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.generator.set_state(state["generator"])
        self.step = state["step"]
        self.best = state["best"].to(self.device)


def train(device, steps=14):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint.pt")
        first = Trainer(device)
        first.run(steps // 2)
        first.save(path)
        print(f"saved after step {first.step}, best {first.best.item():.4f}")

        second = Trainer(device)
        second.load(path)
        second.run(steps)
        print(f"done after step {second.step}, best {second.best.item():.4f}")

        weights = torch.load(path, map_location=device, weights_only=True)["model"]
    return second.model, second.best, nn.ParameterList(v for v in weights.values() if v.is_floating_point())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
