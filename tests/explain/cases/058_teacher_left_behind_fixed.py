"""Knowledge distillation from a wide network into a narrow one."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def convnet(width):
    return nn.Sequential(
        nn.Conv1d(2, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv1d(width, 4, 1),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
    )


class Distiller:
    def __init__(self, teacher, student, device, temperature=2.0):
        self.teacher = teacher.to(device).eval().requires_grad_(False)
        self.student = student.to(device)
        self.temperature = temperature
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.1)

    def step(self, wave):
        t = self.temperature
        wanted = F.softmax(self.teacher(wave) / t, dim=1)
        given = F.log_softmax(self.student(wave) / t, dim=1)
        loss = F.kl_div(given, wanted, reduction="batchmean") * t * t
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(58)
device = torch.device("cuda")
distiller = Distiller(convnet(16), convnet(4), device)
for _ in range(2):
    print("loss", distiller.step(torch.randn(3, 2, 9, device=device)))
print("OK")
