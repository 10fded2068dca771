"""The default dtype is float64, and what is made on the device asks for no other."""
import torch

torch.set_default_dtype(torch.float)
DEVICE = "mps"


def heat(n, steps, rate=0.2):
    u = torch.zeros(n, device=DEVICE)
    u[n // 2] = 1.0
    for _ in range(steps):
        u = u + rate * (u.roll(1) - 2 * u + u.roll(-1))
    return u


u = heat(33, 10)
print("total", round(u.sum().item(), 3))
print("OK")
