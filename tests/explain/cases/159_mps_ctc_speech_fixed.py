"""A small speech recogniser: frames to characters, trained with CTC."""
import torch
import torch.nn as nn

DEVICE = "mps"
CHARACTERS = 12


class Recogniser(nn.Module):
    def __init__(self, bands=20, width=32):
        super().__init__()
        self.frames = nn.Conv1d(bands, width, 3, padding=1)
        self.head = nn.Linear(width, CHARACTERS)
        self.ctc = nn.CTCLoss(blank=0, zero_infinity=True)

    def forward(self, spectrogram):
        h = torch.relu(self.frames(spectrogram)).permute(2, 0, 1)  # (T, B, C)
        return self.head(h).log_softmax(-1)

    def loss(self, spectrogram, targets, lengths):
        log_probs = self(spectrogram)
        steps = torch.full((spectrogram.shape[0],), log_probs.shape[0], dtype=torch.long)
        return self.ctc(log_probs.cpu(), targets.cpu(), steps, lengths).to(log_probs.device)


def main():
    torch.manual_seed(0)
    model = Recogniser().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        spectrogram = torch.randn(3, 20, 40).to(DEVICE)
        targets = torch.randint(1, CHARACTERS, (3, 6)).to(DEVICE)
        loss = model.loss(spectrogram, targets, torch.tensor([6, 4, 5]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
