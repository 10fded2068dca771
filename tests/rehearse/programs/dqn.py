"""Deep Q-learning with a replay buffer and a target network walks to the end of a corridor."""

import argparse
import copy
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

LENGTH = 6


class Corridor:
    """Left or right; a reward at the far end."""

    def reset(self):
        self.position = 0
        return self.observation()

    def step(self, action):
        self.position = max(0, self.position + (1 if action == 1 else -1))
        done = self.position == LENGTH - 1
        return self.observation(), 1.0 if done else -0.05, done

    def observation(self):
        return [float(i == self.position) for i in range(LENGTH)]


def learn(network, target, optimizer, batch, device):
    states, actions, rewards, following, dones = (list(column) for column in zip(*batch, strict=True))
    states = torch.tensor(states, device=device)
    actions = torch.tensor(actions, device=device)
    rewards = torch.tensor(rewards, device=device)
    following = torch.tensor(following, device=device)
    dones = torch.tensor(dones, device=device)
    q = network(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = target(following).max(dim=1).values
        expected = torch.where(dones, rewards, rewards + 0.9 * best)
    loss = F.smooth_l1_loss(q, expected)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def train(device, steps=90):
    torch.manual_seed(0)
    dice = random.Random(0)
    network = nn.Sequential(nn.Linear(LENGTH, 24), nn.Tanh(), nn.Linear(24, 2)).to(device)
    target = copy.deepcopy(network).requires_grad_(False)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    buffer = deque(maxlen=500)
    corridor = Corridor()
    state = corridor.reset()
    for step in range(steps):
        if dice.random() < max(0.1, 1 - step / 60):
            action = dice.randrange(2)
        else:
            with torch.no_grad():
                action = network(torch.tensor([state], device=device)).argmax(dim=1).item()
        following, reward, done = corridor.step(action)
        buffer.append((state, action, reward, following, done))
        state = corridor.reset() if done else following
        if len(buffer) >= 16:
            loss = learn(network, target, optimizer, dice.sample(list(buffer), 16), device)
            if step % 20 == 0:
                print(f"step {step}: loss {loss.item():.5f}")
        for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
            slow.data.mul_(0.95).add_(fast.data, alpha=0.05)
    return network, target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
