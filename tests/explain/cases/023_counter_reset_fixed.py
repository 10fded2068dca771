"""Vector quantiser that counts how often each code word is used and starts the count anew every epoch."""
import torch
from torch import nn


class Codebook(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.words = nn.Parameter(torch.randn(words, dim))
        self.register_buffer("used", torch.zeros(words))

    def reset(self):
        self.used.zero_()

    def forward(self, x):
        choice = torch.cdist(x, self.words).argmin(dim=1)
        self.used += torch.bincount(choice, minlength=len(self.words))
        return self.words[choice]


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(8, 3)
        self.codebook = Codebook(words=5, dim=3)
        self.decode = nn.Linear(3, 8)

    def forward(self, x):
        z = self.encode(x)
        q = self.codebook(z)
        return self.decode(z + (q - z).detach())


def main():
    torch.manual_seed(23)
    model = AutoEncoder().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        model.codebook.reset()
        for _ in range(2):
            x = torch.rand(10, 8, device="cuda")
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, "words in use", int((model.codebook.used > 0).sum()))
    print("OK")


main()
