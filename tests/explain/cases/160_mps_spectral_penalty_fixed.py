"""Keep the Lipschitz constant of a critic small: a penalty on the spectral norm of its layers."""
import torch
import torch.nn as nn

device = torch.device("mps")


def spectral_penalty(model, limit=1.0):
    total = 0.0
    for layer in model:
        if isinstance(layer, nn.Linear):
            weight = layer.weight
            norm = torch.linalg.svd(weight, full_matrices=False).S[..., 0]
            total = total + torch.relu(norm - limit) ** 2
    return total


def main():
    torch.manual_seed(1)
    critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    real, fake = torch.randn(32, 8, device=device), torch.randn(32, 8, device=device)
    loss = critic(fake).mean() - critic(real).mean() + 10 * spectral_penalty(critic)
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
