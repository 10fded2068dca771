"""Click prediction from a batch of named columns."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clicks(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(11)
        self.user = torch.randint(0, 20, (n,), generator=g)
        self.price = torch.rand(n, 1, generator=g)
        self.clicked = (torch.rand(n, generator=g) > 0.6).float()

    def __len__(self):
        return len(self.user)

    def __getitem__(self, i):
        return {"user": self.user[i], "price": self.price[i], "clicked": self.clicked[i]}


class ClickNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(20, 4)
        self.mlp = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, price):
        return self.mlp(torch.cat([self.user(user), price], dim=1)).squeeze(1)


def train(model, loader, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.BCEWithLogitsLoss()
    total = 0.0
    for batch in loader:
        batch = {name: value.to(device) for name, value in batch.items()}
        logits = model(batch["user"], batch["price"])
        loss = criterion(logits, batch["clicked"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


if __name__ == "__main__":
    torch.manual_seed(11)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = ClickNet().to(device)
    print("mean loss", train(model, DataLoader(Clicks(32), batch_size=8), device))
    print("OK")
