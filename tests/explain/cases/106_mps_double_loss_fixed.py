"""Training loop that sums its loss in double precision."""
import torch
from torch import nn


def train(net, data, device):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    total = 0.0
    for x, y in data:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.huber_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return float(total) / len(data)


def main():
    torch.manual_seed(40)
    device = torch.device("mps")
    net = nn.Sequential(nn.Linear(4, 12), nn.Softplus(), nn.Linear(12, 1)).to(device)
    x = torch.randn(64, 4)
    y = x.prod(1, keepdim=True)
    data = list(zip(x.split(16), y.split(16)))
    print("mean loss", round(train(net, data, device), 4))
    print("OK")


main()
