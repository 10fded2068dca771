"""One network, two domains; accuracy is followed on both."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def domain(seed, shift):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(48, 6, generator=g) + shift
    y = (x[:, 0] > shift).long()
    return TensorDataset(x, y)


def collate(samples):
    xs, ys = zip(*samples)
    return torch.stack(xs), torch.stack(ys)


def epoch(net, day, night, optimizer, device):
    right = 0
    for i, ((day_x, day_y), (night_x, night_y)) in enumerate(zip(day, night)):
        day_x, day_y = day_x.to(device), day_y.to(device)
        night_x, night_y = night_x.to(device), night_y.to(device)
        loss = nn.functional.cross_entropy(net(day_x), day_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            hit = net(night_x).argmax(1) == night_y
        right += hit.sum().item()
    return right / 48, i + 1


def main():
    torch.manual_seed(31)
    device = torch.device("cuda")
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
    day = DataLoader(domain(1, 0.0), 16, shuffle=True, collate_fn=collate)
    night = DataLoader(domain(2, 0.3), 16, collate_fn=collate)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    print("accuracy %.3f after %d batches" % epoch(net, day, night, optimizer, device))
    print("OK")


main()
