"""Soft actor-critic: policy update with a learned temperature."""
import torch
from torch import nn
from torch.distributions import Normal


class Policy(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.body = nn.Linear(obs, 32)
        self.mean, self.log_std = nn.Linear(32, act), nn.Linear(32, act)

    def forward(self, obs):
        h = self.body(obs).relu()
        dist = Normal(self.mean(h), self.log_std(h).clamp(-5, 2).exp())
        action = dist.rsample()
        return action.tanh(), dist.log_prob(action).sum(-1)


class Agent:
    def __init__(self, obs, act, device):
        self.device = torch.device(device)
        self.policy = Policy(obs, act).to(self.device)
        self.critic = nn.Sequential(nn.Linear(obs + act, 32), nn.ReLU(), nn.Linear(32, 1)).to(self.device)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.actor_optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=1e-3)

    def update(self, obs):
        obs = obs.to(self.device)
        action, log_prob = self.policy(obs)
        value = self.critic(torch.cat([obs, action], -1)).squeeze(-1)
        loss = (self.log_alpha.exp().detach() * log_prob - value).mean()
        self.actor_optimizer.zero_grad()
        loss.backward()
        self.actor_optimizer.step()
        temperature = -(self.log_alpha * (log_prob.detach() - 2.0)).mean()
        self.alpha_optimizer.zero_grad()
        temperature.backward()
        self.alpha_optimizer.step()
        return loss.item()


torch.manual_seed(47)
agent = Agent(5, 2, "cuda")
print([round(agent.update(torch.randn(16, 5)), 4) for _ in range(3)])
print("OK")
