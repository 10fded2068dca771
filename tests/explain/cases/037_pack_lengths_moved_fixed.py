"""Names a melody's key from note sequences of different lengths."""
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader


class Melodies(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(37)
        sizes = torch.randint(3, 9, (n,), generator=g).tolist()
        self.items = [(torch.randint(1, 13, (s,), generator=g), s % 2) for s in sizes]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    notes, keys = zip(*items)
    lengths = torch.tensor([len(n) for n in notes])
    return pad_sequence(notes, batch_first=True), lengths, torch.tensor(keys)


class KeyFinder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(13, 6, padding_idx=0)
        self.rnn = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, notes, lengths):
        packed = pack_padded_sequence(self.embed(notes), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (h, _) = self.rnn(packed)
        return self.head(h[-1])


torch.manual_seed(37)
device = torch.device("cuda")
finder = KeyFinder().to(device)
for batch in DataLoader(Melodies(12), batch_size=4, collate_fn=collate):
    notes, lengths, keys = (part.to(device) for part in batch)
    loss = nn.functional.cross_entropy(finder(notes, lengths), keys)
    print("loss", loss.item())
print("OK")
