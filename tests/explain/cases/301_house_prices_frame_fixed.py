"""House prices from a DataFrame."""
import numpy as np
import pandas as pd
import torch
from torch import nn


def table(n):
    rng = np.random.default_rng(301)
    df = pd.DataFrame({"rooms": rng.integers(1, 7, n), "area": rng.uniform(30, 200, n), "age": rng.integers(0, 90, n)})
    df["price"] = df["area"] * 2.5 + df["rooms"] * 10 - df["age"] * 0.3
    return df


def tensors(df, device):
    features = ["rooms", "area", "age"]
    x = torch.as_tensor(((df[features] - df[features].mean()) / df[features].std()).values, dtype=torch.float32, device=device)
    y = torch.as_tensor(df["price"].values, dtype=torch.float32, device=device)
    return x, y.unsqueeze(1)


def main():
    torch.manual_seed(301)
    device = "mps"
    x, y = tensors(table(80), device)
    net = nn.Linear(3, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5):
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 1))
    print("OK")


main()
