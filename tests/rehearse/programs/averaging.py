"""Averages of the weights: an exponential one all along, and stochastic weight averaging in the second half."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset


class ShadowWeights:
    """The exponential average as people write it by hand."""

    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].lerp_(p, 1 - self.decay)


def train(device, steps=16):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(128, 6, generator=generator)
    y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, generator=generator)

    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3)).to(device)
    ema = AveragedModel(model, device=device, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    swa = AveragedModel(model, device=device)
    by_hand = ShadowWeights(model, 0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    flat = SWALR(optimizer, swa_lr=0.02, anneal_epochs=2)

    done = 0
    while done < steps:
        for inputs, labels in loader:
            loss = F.cross_entropy(model(inputs.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update_parameters(model)
            by_hand.update(model)
            done += 1
        if done > steps // 2:
            swa.update_parameters(model)
            flat.step()
        else:
            cosine.step()
        print(f"step {done}: loss {loss.item():.4f}")
    if steps:
        update_bn(loader, swa, device=device)
    return model, ema, swa, nn.ParameterList(by_hand.shadow.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    train(parser.parse_args().device)
