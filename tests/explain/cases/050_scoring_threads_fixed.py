"""Scores several candidate lists at once in a pool of threads."""
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class Scorer:
    def __init__(self, device):
        self.device = device
        self.query = nn.Linear(6, 6, bias=False).to(device)
        self.candidates = {name: torch.randn(5, 6, device=device) for name in ("news", "music", "games")}

    @torch.no_grad()
    def score(self, name, user):
        query = self.query(user)
        return torch.matmul(self.candidates[name], query).max().item()

    def score_all(self, user):
        with ThreadPoolExecutor(max_workers=2) as pool:
            jobs = {name: pool.submit(self.score, name, user) for name in self.candidates}
            return {name: job.result() for name, job in jobs.items()}


def main():
    torch.manual_seed(50)
    scorer = Scorer(torch.device("cuda"))
    user = torch.randn(6, device=scorer.device)
    for name, value in scorer.score_all(user).items():
        print(name, round(value, 3))
    print("OK")


main()
