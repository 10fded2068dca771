"""A decoder-only transformer learns to count in words."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

TEXT = "one two three four five six seven eight nine ten " * 40
VOCABULARY = sorted(set(TEXT))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(C, dim=2)
        q, k, v = (
            t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v)
        )  # (B, heads, T, C/heads)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, context, width=32, heads=4, layers=2):
        super().__init__()
        self.token = nn.Embedding(len(VOCABULARY), width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(VOCABULARY), bias=False)
        self.head.weight = self.token.weight  # tied

    def forward(self, tokens, targets=None):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))  # (B, T, V)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, tokens, n, context):
        for _ in range(n):
            logits, _ = self(tokens[:, -context:])
            tokens = torch.cat((tokens, logits[:, -1:].argmax(dim=-1)), dim=1)
        return tokens


def train(device, steps=20, context=32):
    torch.manual_seed(0)
    data = torch.tensor([VOCABULARY.index(c) for c in TEXT])
    model = GPT(context).to(device)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 0.5 * (1 + math.cos(math.pi * i / 40)))

    for step in range(steps):
        starts = torch.randint(len(data) - context - 1, (8,))
        x = torch.stack([data[i : i + context] for i in starts]).to(device)
        y = torch.stack([data[i + 1 : i + context + 1] for i in starts]).to(device)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}")

    prompt = data[:4].unsqueeze(0).to(device)
    print("".join(VOCABULARY[i] for i in model.generate(prompt, 12, context)[0].tolist()))
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
