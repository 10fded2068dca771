"""Steers a network with a forward hook that adds a direction to a hidden layer."""
import torch
import torch.nn as nn


def steer(layer, direction, strength):
    def hook(module, inputs, output):
        return output + strength * direction

    return layer.register_forward_hook(hook)


def contrast(model, up, down):
    """The difference between the mean activations of two sets of prompts."""
    with torch.no_grad():
        a = model[:2](up).mean(0)
        b = model[:2](down).mean(0)
    return (a - b).cpu()


def main():
    torch.manual_seed(28)
    device = "cuda"
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4), nn.Softmax(dim=-1)).to(device)
    direction = contrast(model, torch.rand(5, 6, device=device), -torch.rand(5, 6, device=device))
    print("direction", direction.norm().item())
    x = torch.randn(3, 6, device=device)
    plain = model(x)
    handle = steer(model[1], direction, strength=3.0)
    steered = model(x)
    handle.remove()
    print("change", (steered - plain).abs().sum().item())
    print("OK")


if __name__ == "__main__":
    main()
