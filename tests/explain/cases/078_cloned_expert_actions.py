"""Behaviour cloning from recorded (observation, action) pairs."""
import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda"


class Demonstrations(Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(12)
        self.obs = torch.randn(count, 4, generator=g)
        self.acts = (self.obs[:, 0] > 0).long() + (self.obs[:, 1] > 1).long()

    def __len__(self):
        return len(self.obs)

    def __getitem__(self, i):
        return {"obs": self.obs[i], "acts": self.acts[i]}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))

    def evaluate_actions(self, obs, acts):
        dist = Categorical(logits=self.body(obs))
        return dist.log_prob(acts), dist.entropy()


def main():
    torch.manual_seed(12)
    policy = Policy().to(DEVICE)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for batch in DataLoader(Demonstrations(60), batch_size=20, shuffle=True):
        obs = batch["obs"].to(DEVICE)
        log_prob, entropy = policy.evaluate_actions(obs, batch["acts"])
        loss = -log_prob.mean() - 1e-3 * entropy.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", round(loss.item(), 4))
    print("OK")


main()
