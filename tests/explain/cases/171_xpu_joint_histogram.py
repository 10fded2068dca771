"""Mutual information of two signals from their joint histogram."""
import torch

DEVICE = "xpu"


def mutual_information(a, b, bins=6):
    pairs = torch.stack([a, b], dim=1)
    joint = torch.histogramdd(pairs, [bins, bins]).hist
    joint = joint / joint.sum()
    outer = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    kept = joint > 0
    return (joint[kept] * (joint[kept] / outer[kept]).log()).sum()


def main():
    torch.manual_seed(12)
    a = torch.randn(500, device=DEVICE)
    print("information", round(mutual_information(a, a.sin()).item(), 2))
    print("OK")


if __name__ == "__main__":
    main()
