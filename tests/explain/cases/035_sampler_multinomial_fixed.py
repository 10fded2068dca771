"""Draws tokens from a bigram model with a reproducible generator."""
import torch
import torch.nn as nn


class Sampler:
    def __init__(self, seed, device, temperature=1.0):
        self.generator = torch.Generator(device).manual_seed(seed)
        self.temperature = temperature

    def __call__(self, logits):
        p = torch.softmax(logits / self.temperature, dim=-1)
        return torch.multinomial(p, num_samples=1, generator=self.generator)


@torch.no_grad()
def write(model, sampler, first, length):
    out = [first]
    for _ in range(length):
        out.append(sampler(model(out[-1].squeeze(1))))
    return torch.cat(out, dim=1)


torch.manual_seed(35)
bigram = nn.Sequential(nn.Embedding(12, 6), nn.Linear(6, 12)).to("cuda")
start = torch.zeros(4, 1, dtype=torch.long, device="cuda")
text = write(bigram, Sampler(seed=7, device="cuda", temperature=0.8), start, length=5)
print("text", tuple(text.shape))
print("OK")
