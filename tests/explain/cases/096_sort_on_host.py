"""Batches of sentences are sorted by length, encoded and put back in order."""
import torch
from torch import nn

PAD = 0


class SortedEncoder(nn.Module):
    def __init__(self, words=60, width=12):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=PAD)
        self.rnn = nn.RNN(width, width, batch_first=True)

    def forward(self, ids):
        lengths = ids.ne(PAD).sum(1)
        order = lengths.cpu().argsort(descending=True, stable=True)
        longest_first = ids.index_select(0, order)
        out, _ = self.rnn(self.words(longest_first))
        last = lengths[order].clamp(min=1) - 1
        state = out[torch.arange(len(ids), device=ids.device), last]
        return state[order.argsort()]


def sentences(count, longest):
    ids = torch.randint(1, 60, (count, longest))
    cut = torch.randint(2, longest + 1, (count, 1))
    return ids.masked_fill(torch.arange(longest) >= cut, PAD)


def main():
    torch.manual_seed(30)
    encoder = SortedEncoder().to("cuda")
    head = nn.Linear(12, 1).to("cuda")
    ids = sentences(6, 9).to("cuda")
    loss = head(encoder(ids)).square().mean()
    loss.backward()
    print("loss", round(loss.item(), 5))
    print("OK")


if __name__ == "__main__":
    main()
