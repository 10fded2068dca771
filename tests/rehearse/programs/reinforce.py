"""Policy gradients with a value baseline balance a pole; actions are drawn on the CPU."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class CartPole:
    """Four numbers, two actions (Barto, Sutton and Anderson 1983)."""

    def reset(self, generator):
        self.state = (0.1 * torch.rand(4, generator=generator) - 0.05).tolist()
        return torch.tensor(self.state)

    def step(self, action):
        x, dx, angle, spin = self.state
        force = 10.0 if action else -10.0
        push = (force + 0.05 * spin**2 * math.sin(angle)) / 1.1
        turn = (9.8 * math.sin(angle) - math.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        ddx = push - 0.05 * turn * math.cos(angle) / 1.1
        self.state = [x + 0.02 * dx, dx + 0.02 * ddx, angle + 0.02 * spin, spin + 0.02 * turn]
        return torch.tensor(self.state), abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, x):
        hidden = self.body(x)
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def train(device, steps=6):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = ActorCritic().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for episode in range(steps):
        pole = CartPole()
        observation, done = pole.reset(generator), False
        log_probabilities, values, rewards = [], [], []
        while not done and len(rewards) < 60:
            logits, value = model(observation.to(device))
            policy = Categorical(logits=logits)
            action = torch.multinomial(policy.probs.detach().cpu(), 1, generator=generator).squeeze()
            log_probabilities.append(policy.log_prob(action.to(device)))
            values.append(value)
            observation, done = pole.step(action.item())
            rewards.append(1.0)

        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.98 * total
            returns.insert(0, total)
        returns = torch.tensor(returns, device=device)
        values = torch.stack(values)
        advantages = returns - values.detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        loss = -(torch.stack(log_probabilities) * advantages).sum() + F.mse_loss(values, returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"episode {episode}: {len(rewards)} steps")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
