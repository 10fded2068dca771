"""Mean-field variational inference of a linear model."""
import torch
from torch import nn
from torch.distributions import Independent, Normal


class Guide(nn.Module):
    def __init__(self, size, start=0.1):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(size))
        self.register_buffer("scale", torch.full((size,), start))

    def forward(self):
        return Independent(Normal(self.loc, self.scale), 1)


def log_joint(weights, x, y):
    prior = Normal(torch.zeros_like(weights), 1.0).log_prob(weights).sum(-1)
    fit = Normal(weights @ x.T, 0.5).log_prob(y).sum(-1)
    return prior + fit


def elbo(guide, x, y, particles=8):
    posterior = guide()
    weights = posterior.rsample((particles,))
    return (log_joint(weights, x, y) - posterior.log_prob(weights)).mean()


def main():
    torch.manual_seed(54)
    device = torch.device("cuda")
    truth = torch.tensor([1.0, -2.0, 0.5], device=device)
    x = torch.randn(30, 3, device=device)
    y = x @ truth + 0.3 * torch.randn(30, device=device)
    guide = Guide(3).to(device)
    optimizer = torch.optim.Adam(guide.parameters(), lr=0.1)
    for _ in range(5):
        loss = -elbo(guide, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loc", [round(v, 3) for v in guide.loc.tolist()])
    print("OK")


main()
