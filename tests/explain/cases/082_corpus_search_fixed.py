"""Semantic search over a handful of sentences with a toy encoder."""
import torch
from torch import nn
from torch.nn import functional as F

SENTENCES = [
    "the boat crosses the river", "a ferry leaves at noon", "cheap flights to the coast",
    "the bread is in the oven", "a baker kneads the dough", "water boils in the pot",
]


class BagEncoder(nn.Module):
    def __init__(self, buckets=64, width=12):
        super().__init__()
        self.buckets = buckets
        self.bag = nn.EmbeddingBag(buckets, width)
        self.proj = nn.Linear(width, width)

    def encode(self, sentences, to_host=False):
        rows = []
        for sentence in sentences:
            ids = [sum(map(ord, word)) % self.buckets for word in sentence.split()]
            ids = torch.tensor([ids], device=self.proj.weight.device)
            row = self.proj(self.bag(ids))
            rows.append(row.cpu() if to_host else row)
        return torch.cat(rows)


def search(query, corpus, k):
    scores = F.cosine_similarity(query[:, None], corpus.to(query.device)[None], dim=-1)
    return scores.topk(k)


@torch.inference_mode()
def main():
    torch.manual_seed(16)
    encoder = BagEncoder().to("cuda").eval()
    corpus = encoder.encode(SENTENCES, to_host=True)
    query = encoder.encode(["a boat leaves the coast"])
    found = search(query, corpus, k=2)
    for score, i in zip(found.values[0].tolist(), found.indices[0].tolist()):
        print(f"{score:+.3f}", SENTENCES[i])
    print("OK")


main()
