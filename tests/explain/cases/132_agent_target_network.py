"""Q-learning agent with an online and a target network."""
import copy

import torch
from torch import nn


class QNet(nn.Module):
    def __init__(self, obs, actions):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(obs, 20), nn.ReLU(), nn.Linear(20, actions))

    def forward(self, obs):
        return self.layers(obs)


class Agent:
    def __init__(self, obs, actions):
        self.online = QNet(obs, actions)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.device = torch.device("cpu")

    def to(self, device):
        self.online.to(device)
        self.device = torch.device(device)
        return self

    def td_error(self, obs, action, reward, following):
        value = self.online(obs).gather(1, action[:, None]).squeeze(1)
        best = self.target(following).max(1).values
        return value - (reward + 0.95 * best)

    def learn(self, optimizer, transition):
        error = self.td_error(*(t.to(self.device) for t in transition))
        loss = error.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.data.mul_(0.9).add_(o.data, alpha=0.1)
        return loss.item()


def main():
    torch.manual_seed(66)
    agent = Agent(4, 3).to("cuda")
    optimizer = torch.optim.Adam(agent.online.parameters(), lr=1e-2)
    for _ in range(3):
        transition = torch.randn(12, 4), torch.randint(0, 3, (12,)), torch.randn(12), torch.randn(12, 4)
        print("loss", round(agent.learn(optimizer, transition), 4))
    print("OK")


main()
