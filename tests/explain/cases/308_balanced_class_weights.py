"""Classes that are not balanced, weighed by scikit-learn."""
import numpy as np
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn


def loss_for(labels, device):
    weights = compute_class_weight("balanced", classes=np.unique(labels), y=labels)
    weights = torch.tensor(weights)
    return nn.CrossEntropyLoss(weight=weights.to(device))


def main():
    torch.manual_seed(308)
    device = torch.device("mps")
    labels = np.repeat([0, 1, 2], [60, 25, 5])
    x = torch.randn(90, 6) + torch.from_numpy(labels).unsqueeze(1)
    model = nn.Linear(6, 3).to(device)
    criterion = loss_for(labels, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss = criterion(model(x.to(device)), torch.from_numpy(labels).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item() > 0)
    print("OK")


if __name__ == "__main__":
    main()
