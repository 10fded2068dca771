"""Q-learning from a replay memory that lives in host memory."""
import random
from collections import deque

import torch
from torch import nn


class Replay:
    def __init__(self, capacity, device):
        self.memory = deque(maxlen=capacity)
        self.device = device

    def push(self, state, action, reward, after):
        self.memory.append((state, action, reward, after))

    def sample(self, size):
        states, actions, rewards, after = zip(*random.sample(self.memory, size))
        states = torch.stack(states).to(self.device)
        actions = torch.tensor(actions, device=self.device)
        after = torch.stack(after).to(self.device)
        return states, actions, torch.tensor(rewards, device=self.device), after


def update(q, target, optimizer, batch, gamma=0.95):
    states, actions, rewards, after = batch
    value = q(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        goal = torch.addcmul(rewards, target(after).amax(1), torch.full_like(value, gamma))
    loss = nn.functional.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main(device="cuda"):
    random.seed(53)
    torch.manual_seed(53)
    replay = Replay(50, device)
    for _ in range(20):
        state = torch.randn(4)
        replay.push(state, random.randrange(2), random.random(), state.roll(1))
    q, target = (nn.Linear(4, 2).to(device) for _ in range(2))
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.RMSprop(q.parameters(), lr=1e-3)
    for _ in range(2):
        print("loss", update(q, target, optimizer, replay.sample(8)))
    print("OK")


main()
