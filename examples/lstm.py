"""Train an LSTM to tell comments, strings, keywords and the rest of Python apart, one character at a time.

    python examples/lstm.py                  # the best device here
    python examples/lstm.py --device cpu --epochs 5

The data is Python's own standard library, tagged by its `tokenize` module. Several readers go through the code at once,
a line at a step. Lines differ in length, so they are packed; and what a reader has read tells whether it is still
inside a docstring, so its state is carried from line to line and cut off from the graph.

Letters in the shapes: B readers, T characters of the longest line in a step, N characters in all lines of a step,
E width of an embedding, S width of a state, K kinds.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import io
import keyword
import time
import tokenize
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

TRAIN = ("calendar", "fractions", "heapq", "queue", "random", "shlex", "textwrap")
TEST = ("graphlib", "sched")
KINDS = ("space", "name", "keyword", "number", "string", "comment", "operator")
MARKS = " nk9s#="  # one letter for each kind
SAMPLE = '''\
def area(r):  # of a circle
    """It is
    pi * r ** 2."""
    return 3.14 * r * r
'''

State = tuple[torch.Tensor, torch.Tensor]  # hidden, cell: each (layers, B, S)
Line = tuple[torch.Tensor, torch.Tensor]  # characters, kinds: each (T,)


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    if torch.xpu.is_available():
        return "xpu"
    return "cpu"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train an LSTM to tag each character of Python source code.")
    parser.add_argument("--device", default=best_device(), help="cpu, cuda, cuda:1, mps, xpu (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="at most so many steps in an epoch (default: all)")
    parser.add_argument("--readers", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def tag(source: str) -> list[tuple[str, list[int]]]:
    """The lines of `source`, and for each character of a line the index of its kind."""
    lines = source.splitlines(keepends=True)
    kinds = [[KINDS.index("space")] * len(line) for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if token.type == tokenize.NAME:
            kind = "keyword" if keyword.iskeyword(token.string) else "name"
        elif "STRING" in name:  # FSTRING_START and its kin too, from Python 3.12 on
            kind = "string"
        elif name in ("NUMBER", "COMMENT", "OP"):
            kind = {"NUMBER": "number", "COMMENT": "comment", "OP": "operator"}[name]
        else:
            continue
        (first_row, first_column), (last_row, last_column) = token.start, token.end
        for row in range(first_row, last_row + 1):
            start = first_column if row == first_row else 0
            end = last_column if row == last_row else len(lines[row - 1])
            kinds[row - 1][start:end] = [KINDS.index(kind)] * (end - start)
    return list(zip(lines, kinds, strict=True))


def load(modules: tuple[str, ...]) -> list[Line]:
    lines = []
    for module in modules:
        for text, kinds in tag(inspect.getsource(importlib.import_module(module))):
            characters = [min(ord(character), 127) for character in text]  # all beyond ASCII are one character
            lines.append((torch.tensor(characters), torch.tensor(kinds)))
    return lines


def read_together(lines: list[Line], readers: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """One line of each reader at a time, padded: characters (B, T), kinds (B, T), lengths (B,)."""
    share = len(lines) // readers
    for row in range(share):
        characters, kinds = zip(*(lines[reader * share + row] for reader in range(readers)), strict=True)
        lengths = torch.tensor([len(line) for line in characters])
        yield pad_sequence(characters, batch_first=True), pad_sequence(kinds, batch_first=True), lengths


class Tagger(nn.Module):
    def __init__(self, characters: int = 128, embedding: int = 32, width: int = 64, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.lstm = nn.LSTM(embedding, width, layers, batch_first=True)
        self.head = nn.Linear(width, len(KINDS))

    def start(self, readers: int) -> State:
        """A state that has read nothing, where the parameters are and of their dtype."""
        zeros = self.head.weight.new_zeros(self.lstm.num_layers, readers, self.lstm.hidden_size)
        return zeros, zeros.clone()

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, state: State) -> tuple[PackedSequence, State]:
        embedded = self.embedding(x)  # (B, T, E)
        # `lengths` stays on the CPU: packing needs the numbers themselves.
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)  # (N, E)
        read, state = self.lstm(packed, state)  # (N, S)
        return read._replace(data=self.head(read.data)), state  # (N, K)


def loss_and_correct(
    logits: PackedSequence, kinds: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    targets = pack_padded_sequence(kinds, lengths, batch_first=True, enforce_sorted=False).data  # (N,), as `logits`
    return F.cross_entropy(logits.data, targets), (logits.data.argmax(dim=-1) == targets).sum()


@torch.no_grad()
def evaluate(model: Tagger, lines: list[Line], device: torch.device, readers: int = 8) -> float:
    """The share of characters whose kind the model tells."""
    model.eval()
    state = model.start(readers)
    correct, count = torch.zeros((), dtype=torch.long, device=device), 0
    for x, kinds, lengths in read_together(lines, readers):
        logits, state = model(x.to(device), lengths, state)
        correct += loss_and_correct(logits, kinds.to(device), lengths)[1]
        count += int(lengths.sum())
    return correct.item() / count


@torch.no_grad()
def show(model: Tagger, source: str, device: torch.device) -> str:
    """Each line of `source`, and below it what the model takes each character for."""
    model.eval()
    state, shown = model.start(1), []
    for text in source.splitlines(keepends=True):
        x = torch.tensor([[ord(character) for character in text]], device=device)  # (1, T)
        logits, state = model(x, torch.tensor([len(text)]), state)
        padded, _ = pad_packed_sequence(logits, batch_first=True)  # (1, T, K)
        shown += [text.rstrip("\n"), "".join(MARKS[kind] for kind in padded[0].argmax(dim=-1).tolist()).rstrip()]
    return "\n".join(shown)


def main() -> None:
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(args.seed)

    train_lines, test_lines = load(TRAIN), load(TEST)
    model = Tagger().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{len(train_lines):,} lines to learn from, {len(test_lines)} to test on, {parameters:,} parameters, {device}"
    )

    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        model.train()
        state = model.start(args.readers)
        total, steps = torch.zeros((), device=device), 0
        for x, kinds, lengths in read_together(train_lines, args.readers):
            if steps == args.steps:
                break
            state = tuple(part.detach() for part in state)  # remembered, but not learned through
            logits, state = model(x.to(device, non_blocking=True), lengths, state)
            loss, _ = loss_and_correct(logits, kinds.to(device, non_blocking=True), lengths)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            total += loss.detach()
            steps += 1
        scheduler.step()
        print(f"epoch {epoch}/{args.epochs}  loss {total.item() / steps:.4f}", flush=True)

    print(", ".join(f"{mark} {kind}" for mark, kind in list(zip(MARKS, KINDS, strict=True))[1:]))
    print(show(model, SAMPLE, device))
    accuracy = evaluate(model, test_lines, device)
    print(f"test accuracy {accuracy:.2%} after {time.perf_counter() - start:.1f} s on {device}")


if __name__ == "__main__":
    main()
