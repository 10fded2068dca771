"""Ridge regression inside a network: the features are learned through the solution."""
import torch
import torch.nn as nn

DEVICE = "mps"


class Ridge(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.features = nn.Linear(3, width)

    def forward(self, x, y):
        phi = torch.tanh(self.features(x))
        gram = phi.T @ phi + 0.1 * torch.eye(phi.shape[1], device=x.device)
        coefficients = torch.linalg.solve(gram, phi.T @ y)
        return phi @ coefficients


def main():
    torch.manual_seed(9)
    model = Ridge().to(DEVICE)
    x = torch.randn(30, 3, device=DEVICE)
    y = x.sum(1, keepdim=True).sin()
    prediction = model(x, y)
    loss = (prediction - y).pow(2).mean()
    loss.backward()
    print("loss", loss.item())
    print("OK")


if __name__ == "__main__":
    main()
