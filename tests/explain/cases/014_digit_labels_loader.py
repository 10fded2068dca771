"""Classifies small synthetic glyphs, in the form of a flat notebook."""
# %% imports
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

# %% data
torch.manual_seed(14)
glyphs = torch.rand(48, 1, 8, 8)
names = (glyphs.mean(dim=(1, 2, 3)) > 0.5).long()
train_set, valid_set = random_split(TensorDataset(glyphs, names), [32, 16])
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
valid_loader = DataLoader(valid_set, batch_size=16)

# %% model
device = torch.device("cuda")
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

# %% training
for images, labels in train_loader:
    images, labels = images.to(device), labels.to(device)
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("train loss", loss.item())

# %% validation
model.eval()
with torch.no_grad():
    total = 0.0
    for images, labels in valid_loader:
        total += F.nll_loss(model(images.to(device)).log_softmax(1), labels, reduction="sum").item()
print("valid loss", total / len(valid_set))
print("OK")
