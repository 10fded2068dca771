"""Sentence classifier with its own weight initialisation."""
import torch
from torch import nn


def init(module):
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        module.weight = nn.Parameter(0.02 * torch.randn(module.num_embeddings, module.embedding_dim))


class Sentences(nn.Module):
    def __init__(self, words=80, width=16, classes=3):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, ids):
        h = self.tokens(ids)
        h = h + self.attend(h, h, h, need_weights=False)[0]
        return self.head(h.mean(1))


def main():
    torch.manual_seed(51)
    net = Sentences().to("cuda")
    net.apply(init)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(2):
        ids = torch.randint(0, 80, (8, 10)).to("cuda")
        loss = nn.functional.cross_entropy(net(ids), ids[:, 0] % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 4))
    print("OK")


main()
