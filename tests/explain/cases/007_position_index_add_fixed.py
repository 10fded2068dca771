"""Tiny causal language model with learned positions."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    vocab = 30
    dim = 16
    longest = 32


class Positions(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = nn.Embedding(config.longest, config.dim)

    def forward(self, tokens):
        batch, length = tokens.shape
        index = torch.arange(length, device=tokens.device).expand(batch, length)
        return self.table(index)


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.dim)
        self.positions = Positions(config)
        self.body = nn.TransformerEncoderLayer(config.dim, 2, dim_feedforward=32, batch_first=True, dropout=0.0)
        self.head = nn.Linear(config.dim, config.vocab)

    def forward(self, tokens):
        h = self.tokens(tokens) + self.positions(tokens)
        return self.head(self.body(h))


def train_step(model, optimizer, tokens):
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss


torch.manual_seed(7)
model = Model(Config()).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
corpus = torch.randint(0, Config.vocab, (4, 11), device="cuda")
print("loss", train_step(model, optimizer, corpus).item())
print("OK")
