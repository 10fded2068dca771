"""A variational autoencoder whose prior is a torch.distributions object."""
import torch
from torch import nn
from torch.distributions import Independent, Normal


class VAE(nn.Module):
    def __init__(self, data, latent):
        super().__init__()
        self.encode = nn.Linear(data, 2 * latent)
        self.decode = nn.Linear(latent, data)
        self.register_buffer("center", torch.zeros(latent))

    def loss(self, x):
        mean, spread = self.encode(x).chunk(2, dim=-1)
        posterior = Independent(Normal(mean, nn.functional.softplus(spread) + 1e-3), 1)
        z = posterior.rsample()
        error = (self.decode(z) - x).square().sum(-1)
        gap = posterior.log_prob(z) - Independent(Normal(self.center, torch.ones_like(self.center)), 1).log_prob(z)
        return (error + gap).mean()


def main():
    torch.manual_seed(45)
    vae = VAE(data=8, latent=2).to("cuda")
    optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3)
    for _ in range(2):
        loss = vae.loss(torch.rand(6, 8, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
    print("OK")


main()
