"""Text-to-image block whose layer norm takes gain and shift from a style bank."""
import torch
from torch import nn
import torch.nn.functional as F


class StyleBank:
    """Serves the tensors of one style as attributes."""

    def __init__(self, tensors):
        self._tensors = dict(tensors)

    def __getattr__(self, name):
        try:
            return self.__dict__["_tensors"][name]
        except KeyError:
            raise AttributeError(name) from None


class StyledBlock(nn.Module):
    def __init__(self, width, style):
        super().__init__()
        self.style = style
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        h = F.layer_norm(x, x.shape[-1:], self.style.gain, self.style.shift)
        return x + self.mlp(h)


def load_style(width, seed):
    g = torch.Generator().manual_seed(seed)
    gain = 1 + 0.1 * torch.randn(width, generator=g)
    shift = 0.1 * torch.randn(width, generator=g)
    return {"gain": gain, "shift": shift}


def main():
    torch.manual_seed(24)
    device = torch.device("cuda")
    loaded = load_style(16, seed=3)
    bank = StyleBank(loaded)
    net = nn.Sequential(*(StyledBlock(16, bank) for _ in range(2))).to(device)
    tokens = torch.randn(2, 7, 16, device=device)
    print("norm", round(net(tokens).norm().item(), 3))
    print("OK")


main()
