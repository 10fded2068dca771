"""Two classification tasks over one trunk, each with balanced classes."""
import torch
from torch import nn
import torch.nn.functional as F


def effective_number(counts, beta=0.99):
    counts = torch.tensor(counts, dtype=torch.float32)
    weight = (1 - beta) / (1 - beta**counts)
    return weight / weight.mean()


class MultiTask(nn.Module):
    def __init__(self, counts):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(9, 24), nn.ReLU())
        self.heads = nn.ModuleDict({task: nn.Linear(24, len(c)) for task, c in counts.items()})
        self.weights = {task: effective_number(c) for task, c in counts.items()}

    def loss(self, x, labels):
        h = self.trunk(x)
        total = 0.0
        for task, y in labels.items():
            logits = self.heads[task](h)
            total = total + F.cross_entropy(logits, y, weight=self.weights[task].to(logits.device), label_smoothing=0.1)
        return total


def main():
    torch.manual_seed(64)
    device = torch.device("cuda")
    net = MultiTask({"shape": [90, 8, 2], "colour": [60, 40]}).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(20, 9, device=device)
        labels = {"shape": torch.randint(0, 3, (20,), device=device), "colour": torch.randint(0, 2, (20,), device=device)}
        loss = net.loss(x, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 4))
    print("OK")


main()
