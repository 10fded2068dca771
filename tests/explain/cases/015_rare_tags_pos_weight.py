"""Multi-label tagging of pictures with rare tags weighted up."""
import torch
from torch import nn

TAGS = ["cat", "dog", "boat", "kite"]


def rarity(targets):
    positive = targets.sum(0)
    return (len(targets) - positive) / positive.clamp(min=1.0)


class Trainer:
    def __init__(self, model, targets, device):
        self.device = device
        self.model = model.to(device)
        self.loss = nn.BCEWithLogitsLoss(pos_weight=rarity(targets))
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def fit(self, features, targets, epochs):
        features, targets = features.to(self.device), targets.to(self.device)
        for _ in range(epochs):
            loss = self.loss(self.model(features), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


torch.manual_seed(15)
features = torch.randn(20, 10)
targets = (torch.rand(20, len(TAGS)) < torch.tensor([0.5, 0.3, 0.2, 0.1])).float()
trainer = Trainer(nn.Linear(10, len(TAGS)), targets, "cuda")
print("loss", trainer.fit(features, targets, epochs=3))
print("OK")
