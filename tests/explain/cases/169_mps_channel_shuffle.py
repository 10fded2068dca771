"""A ShuffleNet block: grouped convolutions that exchange channels."""
import torch
import torch.nn as nn

DEVICE = torch.device("mps")


class Block(nn.Module):
    def __init__(self, channels=12, groups=3):
        super().__init__()
        self.groups = groups
        self.squeeze = nn.Conv2d(channels, channels, 1, groups=groups)
        self.expand = nn.Conv2d(channels, channels, 1, groups=groups)

    def forward(self, x):
        h = torch.relu(self.squeeze(x))
        h = nn.functional.channel_shuffle(h, self.groups)
        return torch.relu(x + self.expand(h))


def main():
    torch.manual_seed(10)
    block = Block().to(DEVICE)
    out = block(torch.rand(2, 12, 6, 6, device=DEVICE))
    out.mean().backward()
    print("out", tuple(out.shape))
    print("OK")


if __name__ == "__main__":
    main()
