"""REINFORCE with returns that are summed up in NumPy."""
import numpy as np
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, state):
        return torch.log_softmax(self.body(state), dim=-1)


def discounted(rewards, gamma=0.99):
    returns = np.zeros(len(rewards))
    total = 0.0
    for t in reversed(range(len(rewards))):
        total = rewards[t] + gamma * total
        returns[t] = total
    return (returns - returns.mean()) / (returns.std() + 1e-8)


def update(policy, optimizer, states, actions, rewards, device):
    states = torch.tensor(states, dtype=torch.float32).to(device)
    actions = torch.tensor(actions).to(device)
    returns = torch.from_numpy(discounted(rewards)).to(device)
    chosen = policy(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    loss = -(chosen * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(306)
    rng = np.random.default_rng(306)
    device = torch.device("mps")
    policy = Policy().to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    states = rng.normal(size=(20, 4))
    actions = rng.integers(0, 2, 20)
    rewards = [1.0] * 20
    update(policy, optimizer, states, actions, rewards, device)
    print("OK")


main()
