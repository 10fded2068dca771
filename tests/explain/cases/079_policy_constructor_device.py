"""An actor-critic policy that takes its device as a constructor argument."""
import torch
import torch.nn as nn


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, device="cpu"):
        super().__init__()
        self.device = torch.device(device)
        self.extractor = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh()).to(self.device)
        self.value_net = nn.Linear(32, 1).to(self.device)
        self.action_net = nn.Linear(32, n_actions)

    def forward(self, obs):
        latent = self.extractor(obs)
        value = self.value_net(latent)
        logits = self.action_net(latent)
        return logits, value.squeeze(-1)

    @torch.no_grad()
    def predict(self, observation):
        obs = torch.as_tensor(observation, dtype=torch.float32).to(self.device)
        logits, _ = self(obs.unsqueeze(0))
        return int(logits.argmax(-1))


def rollout(policy, steps=5):
    state = [0.1, -0.2, 0.3]
    taken = []
    for _ in range(steps):
        action = policy.predict(state)
        state = [0.9 * s + 0.1 * action for s in state]
        taken.append(action)
    return taken


if __name__ == "__main__":
    torch.manual_seed(13)
    print("actions", rollout(ActorCritic(3, 4, device="cuda:0")))
    print("OK")
