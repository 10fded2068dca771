"""Draws what a network has learned, over a grid from NumPy."""
import numpy as np
import torch
from torch import nn

device = "mps"
torch.manual_seed(319)

model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)).to(device)
x = torch.rand(64, 1, device=device) * 6 - 3
y = torch.sin(x)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(5):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

grid = np.linspace(-3, 3, 50).reshape(-1, 1)
with torch.no_grad():
    curve = model(torch.from_numpy(grid).float().to(device)).cpu().numpy()
print("points", len(curve))
print("OK")
