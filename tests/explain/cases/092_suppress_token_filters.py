"""Greedy transcription with logit filters, put together before decoding starts."""
import torch
from torch import nn

VOCAB, END = 24, 0


def suppress(tokens, vocab):
    banned = torch.zeros(vocab, dtype=torch.bool)
    for token in tokens:
        banned[token] = True

    def apply(logits, so_far):
        return logits.masked_fill(banned, float("-inf"))

    return apply


def no_repeat(logits, so_far):
    return logits.scatter(1, so_far[:, -1:], -1e4)


class TinyDecoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, ids, audio):
        h, _ = self.rnn(self.embed(ids), audio)
        return self.out(h[:, -1])


@torch.no_grad()
def transcribe(net, audio, filters, limit=6):
    ids = torch.full((audio.shape[1], 1), 1, device=audio.device)
    for _ in range(limit):
        logits = net(ids, audio)
        for f in filters:
            logits = f(logits, ids)
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
    return ids


def main():
    torch.manual_seed(26)
    device = torch.device("cuda")
    net = TinyDecoder().to(device)
    filters = [no_repeat, suppress([END, 5, 7], VOCAB)]
    print(transcribe(net, torch.randn(1, 2, 16, device=device), filters).tolist())
    print("OK")


main()
