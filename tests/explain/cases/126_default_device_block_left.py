"""A causal transformer block that is built directly on the card."""
import torch
from torch import nn
import torch.nn.functional as F


class CausalBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)

    def mask(self, length):
        return torch.ones(length, length, dtype=torch.bool).tril()

    def forward(self, x):
        h = self.norm(x)
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mask = self.mask(h.shape[1])
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + mixed.transpose(1, 2).flatten(2)


def main():
    torch.manual_seed(60)
    with torch.device("cuda"):
        embed = nn.Embedding(20, 16)
        blocks = nn.Sequential(CausalBlock(16, 2), CausalBlock(16, 4))
    ids = torch.randint(0, 20, (2, 7)).to("cuda")
    out = blocks(embed(ids))
    print("out", tuple(out.shape), out.device.type)
    print("OK")


main()
