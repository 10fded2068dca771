"""Click model with dense and categorical features."""
import torch
from torch import nn


class ClickModel(nn.Module):
    def __init__(self, items=50, dense=3, width=8):
        super().__init__()
        self.item = nn.Embedding(items, width)
        self.dense = nn.Linear(dense, width)
        self.score = nn.Linear(width, 1)

    def forward(self, batch):
        mixed = self.dense(batch["dense"]) + self.item(batch["item"])
        return self.score(torch.relu(mixed)).squeeze(-1)


def rows(count):
    for _ in range(count):
        yield {
            "dense": torch.randn(16, 3),
            "item": torch.randint(0, 50, (16,)),
            "clicked": (torch.rand(16) < 0.3).float(),
        }


def place(batch, device):
    return {k: v.to(device) for k, v in batch.items()}


def main():
    torch.manual_seed(20)
    device = torch.device("cuda:0")
    model = ClickModel().to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for batch in rows(4):
        batch = place(batch, device)
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch["clicked"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 4))
    print("OK")


if __name__ == "__main__":
    main()
