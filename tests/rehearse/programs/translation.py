"""An encoder-decoder transformer, with padding and causal masks, learns to reverse sequences."""

import argparse

import torch
from torch import nn

PAD, BEGIN, SYMBOLS = 0, 1, 10


class Translator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width, padding_idx=PAD)
        self.register_buffer("positions", self.encoding(16, width), persistent=False)
        self.transformer = nn.Transformer(
            width,
            nhead=4,
            num_encoder_layers=1,
            num_decoder_layers=1,
            dim_feedforward=64,
            dropout=0.0,
            batch_first=True,
        )
        self.out = nn.Linear(width, SYMBOLS)

    @staticmethod
    def encoding(length, width):
        angles = torch.arange(length).unsqueeze(1) / 100 ** (torch.arange(0, width, 2) / width)
        return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)

    def embed(self, tokens):
        return self.embedding(tokens) + self.positions[: tokens.shape[1]]

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask,
            src_key_padding_mask=(source == PAD).float().masked_fill(source == PAD, float("-inf")),
            memory_key_padding_mask=(source == PAD).float().masked_fill(source == PAD, float("-inf")),
            tgt_is_causal=True,
        )
        return self.out(hidden)


def batch(n, generator):
    sources, targets = [], []
    for _ in range(n):
        length = int(torch.randint(4, 9, (), generator=generator))
        sequence = torch.randint(2, SYMBOLS, (length,), generator=generator)
        sources.append(sequence)
        targets.append(torch.cat((torch.tensor([BEGIN]), sequence.flip(0))))
    pad = nn.utils.rnn.pad_sequence
    return pad(sources, batch_first=True, padding_value=PAD), pad(targets, batch_first=True, padding_value=PAD)


def train(device, steps=15):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Translator().to(device)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9)
    for step in range(steps):
        source, target = batch(16, generator)
        source = source.to(device)
        target = target.to(device)
        logits = model(source, target[:, :-1])
        loss = criterion(logits.reshape(-1, SYMBOLS), target[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
