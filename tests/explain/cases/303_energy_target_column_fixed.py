"""Energy use by the weather; the features were taken care of, the target was not."""
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(303)
df = pd.DataFrame({"temp": rng.normal(15, 8, 96), "wind": rng.gamma(2, 2, 96)})
df["kwh"] = 30 - 0.8 * df["temp"] + 0.5 * df["wind"]

x = torch.tensor(df[["temp", "wind"]].values, dtype=torch.float32)
y = torch.tensor(df["kwh"].values, dtype=torch.float32).unsqueeze(1)
loader = DataLoader(TensorDataset(x, y), batch_size=24, shuffle=True)

device = "mps" if torch.backends.mps.is_available() else "cpu"
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters())

for epoch in range(2):
    running = 0.0
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        running += loss.item()
    print("epoch", epoch, "done")
print("OK")
