"""One `to` for device and dtype, the dtype taken from the configuration of another machine."""
import torch
from torch import nn

CONFIG = {"device": "mps", "hidden": 12}


class Interpolator(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, t):
        return self.net(t)


def main():
    torch.manual_seed(330)
    model = Interpolator(CONFIG["hidden"])
    model = model.to(CONFIG["device"], torch.float64)
    t = torch.linspace(0, 1, 9).unsqueeze(1)
    t = t.to(CONFIG["device"], next(model.parameters()).dtype)
    print("curve", tuple(model(t).shape))
    print("OK")


main()
