"""Encodes sentences of different lengths; they are padded on the fly inside the encoder."""
import torch
import torch.nn as nn

PAD = 0


def pad(rows):
    longest = max(len(r) for r in rows)
    out = torch.empty(len(rows), longest, dtype=torch.long)
    out.fill_(PAD)
    for i, r in enumerate(rows):
        out[i, : len(r)] = r
    return out


class SentenceEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(25, 12, padding_idx=PAD)
        self.squash = nn.Linear(12, 4)

    def forward(self, rows):
        ids = pad(rows)
        vectors = self.embed(ids)
        keep = (ids != PAD).unsqueeze(-1)
        mean = (vectors * keep).sum(1) / keep.sum(1)
        return torch.tanh(self.squash(mean))


def sentences(count, device):
    for n in range(count):
        yield torch.randint(1, 25, (3 + n,), device=device)


def main(device="cuda"):
    torch.manual_seed(10)
    encoder = SentenceEncoder().to(device).eval()
    with torch.inference_mode():
        codes = encoder(list(sentences(4, device)))
    print("codes", tuple(codes.shape))
    print("OK")


main()
