"""A denoising autoencoder, its noise drawn by NumPy."""
import numpy as np
import torch
import torch.nn as nn


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 16), nn.ReLU())
        self.decode = nn.Linear(16, 64)

    def forward(self, x):
        return self.decode(self.encode(x))


def train(model, images, device, sigma=0.3):
    optimizer = torch.optim.Adam(model.parameters())
    for batch in images.split(16):
        batch = batch.to(device)
        noisy = batch + sigma * torch.tensor(np.random.randn(*batch.shape), dtype=torch.float32).to(device)
        loss = nn.functional.mse_loss(model(noisy), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(317)
np.random.seed(317)
device = torch.device("mps")
train(Autoencoder().to(device), torch.rand(48, 64), device)
print("OK")
