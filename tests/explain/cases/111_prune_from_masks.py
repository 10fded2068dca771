"""Magnitude pruning over the whole network."""
import torch
from torch import nn
from torch.nn.utils import prune


def global_masks(model, share):
    weights = {n: p.detach().cpu().abs() for n, p in model.named_parameters() if p.dim() > 1}
    every = torch.cat([w.flatten() for w in weights.values()])
    threshold = every.kthvalue(int(share * len(every))).values
    return {n.rpartition(".")[0]: (w > threshold).float() for n, w in weights.items()}


def apply_masks(model, masks):
    for name, layer in model.named_modules():
        if name in masks:
            prune.custom_from_mask(layer, "weight", masks[name])


def density(model):
    kept = [m.weight_mask.mean().item() for m in model.modules() if hasattr(m, "weight_mask")]
    return sum(kept) / len(kept)


def main():
    torch.manual_seed(45)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)).to("cuda")
    masks = global_masks(model, 0.6)
    apply_masks(model, masks)
    out = model(torch.rand(2, 1, 8, 8, device="cuda"))
    print("density", round(density(model), 3), "out", tuple(out.shape))
    print("OK")


main()
