"""Trains the same recurrent counter on every GPU in turn, to compare the cards."""
import torch
import torch.nn as nn


class Counter(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.size = size
        self.cell = nn.GRUCell(2, size)
        self.read = nn.Linear(size, 1)

    def forward(self, events):
        state = torch.zeros(events.shape[1], self.size, device=events.device)
        for event in events:
            state = self.cell(event, state)
        return self.read(state).squeeze(1)


def trial(device, steps=2):
    torch.manual_seed(40)
    model = Counter().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        events = torch.randint(0, 2, (4, 3, 2), device=device).float()
        loss = (model(events) - events.sum((0, 2))).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    for number in range(torch.cuda.device_count()):
        device = torch.device(f"cuda:{number}")
        print(device, trial(device))
    print("OK")


if __name__ == "__main__":
    main()
