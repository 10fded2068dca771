"""Voice conversion: one network embeds the speaker, another one decodes; a helper sets both up."""
import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(3, 5, batch_first=True)

    def forward(self, speech):
        return self.rnn(speech)[1][-1]


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Bilinear(3, 5, 3)

    def forward(self, speech, speaker):
        return self.mix(speech, speaker.unsqueeze(1).expand(-1, speech.shape[1], -1).contiguous())


def set_up(device):
    embedder, decoder = Embedder(), Decoder()
    for model in (decoder,):
        model.to(device)
    return embedder, decoder


def convert(embedder, decoder, speech, sample):
    return decoder(speech, embedder(sample))


if __name__ == "__main__":
    torch.manual_seed(61)
    device = torch.device("cuda:0")
    embedder, decoder = set_up(device)
    speech, sample = torch.randn(2, 7, 3, device=device), torch.randn(2, 5, 3, device=device)
    with torch.no_grad():
        print("converted", tuple(convert(embedder, decoder, speech, sample).shape))
    print("OK")
