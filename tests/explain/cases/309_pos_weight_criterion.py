"""Labels of several kinds, rare ones weighed more; the criterion moves as a whole."""
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(309)
tags = (rng.random((200, 4)) < [0.5, 0.2, 0.1, 0.05]).astype(np.float32)
positive = tags.sum(axis=0, dtype=np.float64)
pos_weight = (len(tags) - positive) / positive

torch.manual_seed(309)
device = torch.device("mps")
model = nn.Linear(10, 4).to(device)
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.from_numpy(pos_weight))
criterion = criterion.to(device)

x = torch.randn(200, 10).to(device)
y = torch.from_numpy(tags).to(device)
loss = criterion(model(x), y)
loss.backward()
print("loss", loss.item() > 0)
print("OK")
