"""Several tasks share one trunk; a task without labels in the batch gives a loss of zero."""
import torch
from torch import nn


class Tasks(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.trunk = nn.Linear(5, 8)
        self.heads = nn.ModuleDict({name: nn.Linear(8, 1) for name in names})
        self.weight = nn.Parameter(torch.ones(len(names)))

    def losses(self, x, labels):
        h = torch.relu(self.trunk(x))
        for name, head in self.heads.items():
            if name in labels:
                yield (head(h).squeeze(1) - labels[name]).abs().mean()
            else:
                yield torch.tensor(0.0)

    def forward(self, x, labels):
        parts = torch.stack(list(self.losses(x, labels)))
        return (parts * self.weight.softmax(0)).sum()


def main():
    torch.manual_seed(59)
    tasks = Tasks(["depth", "normal", "edge"]).to("cuda")
    optimizer = torch.optim.Adam(tasks.parameters())
    for present in (["depth", "normal", "edge"], ["depth", "edge"]):
        x = torch.rand(6, 5, device="cuda")
        loss = tasks(x, {name: x.mean(1) for name in present})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(present, loss.item())
    print("OK")


main()
