"""Fast adaptation: a few gradient steps on a copy of the weights."""
import torch
from torch import nn
from torch.func import functional_call
import torch.nn.functional as F


def adapt(net, fast, x, y, rounds, rate):
    for _ in range(rounds):
        guess = functional_call(net, fast, (x,))
        grads = torch.autograd.grad(F.mse_loss(guess, y), list(fast.values()))
        fast = {name: w - rate * g for (name, w), g in zip(fast.items(), grads)}
    return fast


def sine_task(device):
    x = torch.rand(20, 1, device=device) * 6 - 3
    return x, torch.sin(x + 0.7)


def main():
    torch.manual_seed(42)
    device = torch.device("cuda")
    net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
    fast = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    net.to(device)
    x, y = sine_task(device)
    fast = adapt(net, fast, x, y, rounds=3, rate=0.05)
    after = functional_call(net, {k: v.detach() for k, v in fast.items()}, (x,))
    print("before", round(F.mse_loss(net(x), y).item(), 4), "after", round(F.mse_loss(after, y).item(), 4))
    print("OK")


main()
