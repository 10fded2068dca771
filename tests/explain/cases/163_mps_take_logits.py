"""Policy gradient: the log-probability of the actions that were taken."""
import torch
import torch.nn as nn

DEVICE = "mps"


class Policy(nn.Module):
    def __init__(self, actions=4):
        super().__init__()
        self.actions = actions
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, actions))

    def log_prob(self, states, taken):
        logits = self.net(states).log_softmax(-1)
        rows = torch.arange(len(states), device=states.device)
        flat = rows * self.actions + taken
        return logits.take(flat)


def main():
    torch.manual_seed(4)
    policy = Policy().to(DEVICE)
    states = torch.randn(10, 6, device=DEVICE)
    taken = torch.randint(0, 4, (10,), device=DEVICE)
    loss = -policy.log_prob(states, taken).mean()
    loss.backward()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
