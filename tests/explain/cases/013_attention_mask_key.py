"""Pools token vectors under an attention mask; the batch is a dict."""
import torch
import torch.nn as nn


class MeanPooler(nn.Module):
    def __init__(self, vocab=60, dim=16, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.score = nn.Linear(dim, 1)
        self.classify = nn.Linear(dim, classes)

    def forward(self, batch):
        h = self.embed(batch["input_ids"])
        score = self.score(h).squeeze(-1)
        score = score.masked_fill(batch["attention_mask"] == 0, float("-inf"))
        pooled = torch.bmm(score.softmax(1).unsqueeze(1), h).squeeze(1)
        return self.classify(pooled)


def make_batch(lengths, longest=10):
    ids = torch.zeros(len(lengths), longest, dtype=torch.long)
    mask = torch.zeros(len(lengths), longest, dtype=torch.long)
    for row, n in enumerate(lengths):
        ids[row, :n] = torch.randint(1, 60, (n,))
        mask[row, :n] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.randint(0, 3, (len(lengths),))}


def main():
    torch.manual_seed(13)
    device = "cuda"
    model = MeanPooler().to(device)
    batch = make_batch([10, 6, 3])
    for key in ("input_ids", "labels"):
        batch[key] = batch[key].to(device)
    loss = nn.functional.cross_entropy(model(batch), batch["labels"])
    loss.backward()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
