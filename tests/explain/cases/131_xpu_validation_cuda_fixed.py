"""Training was ported from CUDA to any accelerator; validation was written earlier."""
import torch
from torch import nn


def pick_device():
    return torch.device("xpu" if torch.xpu.is_available() else "cpu")


def make_batch(count):
    inputs = torch.randn(count, 7)
    return {"inputs": inputs, "truth": inputs.cumsum(1)}


def train(net, device, rounds=3):
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(rounds):
        batch = {k: v.to(device) for k, v in make_batch(16).items()}
        loss = nn.functional.l1_loss(net(batch["inputs"]), batch["truth"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def validate(net, device):
    batch = make_batch(8)
    guess = net(batch["inputs"].to(device))
    truth = batch["truth"].to(device)
    return (guess - truth).abs().amax().item()


if __name__ == "__main__":
    torch.manual_seed(65)
    device = pick_device()
    net = nn.Sequential(nn.Linear(7, 28), nn.LeakyReLU(), nn.Linear(28, 7)).to(device)
    print("train", round(train(net, device), 4))
    print("worst", round(validate(net, device), 4))
    print("OK")
