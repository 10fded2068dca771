"""Graph classification: node features are averaged per molecule."""
import torch
import torch.nn as nn


def mean_pool(h, owner, groups):
    size = torch.bincount(owner, minlength=groups).clamp(min=1)
    total = h.new_zeros(groups, h.shape[1])
    total.scatter_add_(0, owner[:, None].expand_as(h), h)
    return total / size[:, None]


class Molecules(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.atom = nn.Embedding(kinds, width)
        self.mix = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)

    def forward(self, atoms, owner, groups):
        h = torch.relu(self.mix(self.atom(atoms)))
        return self.score(mean_pool(h, owner, groups)).squeeze(-1)


def batch(sizes, device):
    atoms = torch.randint(0, 9, (sum(sizes),))
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return atoms.to(device), owner.to(device)


if __name__ == "__main__":
    torch.manual_seed(9)
    device = torch.device("cuda", torch.cuda.current_device())
    net = Molecules(9, 16).to(device)
    atoms, owner = batch([4, 7, 3], device)
    wanted = torch.tensor([0.5, -1.0, 2.0], device=device)
    loss = (net(atoms, owner, 3) - wanted).abs().mean()
    loss.backward()
    print("mae", round(loss.item(), 4))
    print("OK")
