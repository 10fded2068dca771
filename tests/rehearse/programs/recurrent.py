"""An LSTM and a bidirectional GRU read packed sequences of unequal length and tell their parity."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Reader(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embedding = nn.Embedding(3, 8)
        self.lstm = nn.LSTM(8, width, batch_first=True)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, 2)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = self.lstm(packed)
        outputs, hidden = self.gru(outputs)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)  # (B, T, 2W)
        last = torch.cat((hidden[0], hidden[1]), dim=1)
        return self.out(last + outputs.mean(dim=1))


def sequences(n, generator):
    items = [
        torch.randint(1, 3, (int(torch.randint(3, 12, (), generator=generator)),), generator=generator)
        for _ in range(n)
    ]
    lengths = torch.tensor([len(item) for item in items])
    labels = torch.tensor([int((item == 2).sum()) % 2 for item in items])
    return pad_sequence(items, batch_first=True), lengths, labels


def train(device, steps=15):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Reader().to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
    for step in range(steps):
        tokens, lengths, labels = sequences(32, generator)
        tokens = tokens.to(device)
        labels = labels.to(device)
        logits = model(tokens, lengths)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
