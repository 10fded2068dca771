"""One update of an actor from a namedtuple of stacked experience."""
from typing import NamedTuple

import torch
from torch import nn


class Rollout(NamedTuple):
    states: torch.Tensor
    actions: torch.Tensor
    returns: torch.Tensor


def collect(length):
    states = torch.randn(length, 3)
    actions = torch.randint(0, 2, (length,))
    rewards = torch.rand(length)
    returns = rewards.flip(0).cumsum(0).flip(0)
    return Rollout(states, actions, returns)


def policy_loss(actor, rollout):
    logp = torch.log_softmax(actor(rollout.states), dim=1)
    chosen = logp[torch.arange(len(logp), device=logp.device), rollout.actions]
    advantage = rollout.returns - rollout.returns.mean()
    return -(chosen * advantage).mean()


def main():
    torch.manual_seed(32)
    device = torch.device("cuda")
    actor = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.Adam(actor.parameters(), lr=3e-3)
    for _ in range(2):
        rollout = collect(10)
        rollout = Rollout(*(part.to(device) for part in rollout))
        loss = policy_loss(actor, rollout)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
