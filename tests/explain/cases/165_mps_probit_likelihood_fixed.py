"""Probit regression: the likelihood of labels under a linear score."""
import torch

DEVICE = "mps"


def log_likelihood(weight, features, labels):
    margin = (features @ weight) * labels
    tail = torch.log(torch.special.erfcx(-margin.clamp(max=-1) / 2**0.5) / 2) - margin**2 / 2
    rest = torch.log1p(-torch.erfc(margin.clamp(min=-1) / 2**0.5) / 2)
    return torch.where(margin < -1, tail, rest)


def main():
    torch.manual_seed(6)
    features = torch.randn(50, 3, device=DEVICE)
    labels = torch.where(features[:, 0] > 0, 1.0, -1.0)
    weight = torch.zeros(3, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = -log_likelihood(weight, features, labels).mean()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
