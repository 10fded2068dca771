"""Illumination augmentation: a generator object makes the parameters, the module applies them."""
import torch
from torch import nn


class GaussianLight:
    def __init__(self, gain):
        self.gain = gain
        self.device = torch.device("cpu")

    def set_device(self, device):
        self.device = device

    def __call__(self, shape):
        count, _, height, width = shape
        centre = torch.rand(count, 2, device=self.device)
        y = torch.linspace(0, 1, height, device=self.device)
        x = torch.linspace(0, 1, width, device=self.device)
        dy = (y[None] - centre[:, :1]) ** 2
        dx = (x[None] - centre[:, 1:]) ** 2
        light = torch.exp(-4 * (dy[:, None, :, None] + dx[:, None, None, :]))
        return {"gradient": self.gain * light, "centre": centre}


class RandomIllumination(nn.Module):
    def __init__(self, gain=0.2):
        super().__init__()
        self.generator = GaussianLight(gain)

    def forward(self, images):
        params = self.generator(images.shape)
        return images.add_(params["gradient"]).clamp_(0, 1)


def main():
    torch.manual_seed(10)
    model = nn.Sequential(RandomIllumination(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    model.to("cuda")
    out = model(torch.rand(4, 3, 10, 10, device="cuda"))
    print("scores", tuple(out.shape))
    print("OK")


main()
