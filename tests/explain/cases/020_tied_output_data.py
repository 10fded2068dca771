"""Caption decoder that shares its word vectors between input and output."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TiedOutput:
    """Scores hidden states against the word vectors."""

    def __init__(self, embedding):
        self.vectors = embedding.weight.data
        self.bias = 0.1

    def __call__(self, hidden):
        return F.linear(hidden, self.vectors) + self.bias


class CaptionDecoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.words = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.output = TiedOutput(self.words)

    def forward(self, ids):
        hidden, _ = self.rnn(self.words(ids))
        return self.output(hidden)


torch.manual_seed(20)
decoder = CaptionDecoder(vocab=35, dim=8).to("cuda")
ids = torch.randint(0, 35, (3, 7), device="cuda")
logits = decoder(ids)
loss = F.cross_entropy(logits[:, :-1].reshape(-1, 35), ids[:, 1:].reshape(-1))
loss.backward()
print("loss", loss.item())
print("OK")
