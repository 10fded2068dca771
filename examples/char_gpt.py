"""Train a small GPT on characters, save it, load it again and let it write.

    python examples/char_gpt.py                               # the best device here
    python examples/char_gpt.py --steps 2000 --checkpoint gpt.pt
    python examples/char_gpt.py --steps 3000 --checkpoint gpt.pt --resume

The text is what scikit-learn says about its data sets: 43,000 characters of prose and tables, installed along with it.
After Andrej Karpathy's nanoGPT in spirit; the code is its own.

Letters in the shapes: B texts of a batch, T characters of context, C width of the model, H heads, D = C / H width of a
head, V characters in the vocabulary.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocabulary: str
    context: int = 64
    layers: int = 2
    heads: int = 4
    width: int = 64


class SelfAttention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        # A buffer, so that model.to(device) takes it along; rebuilt rather than saved, so not persistent.
        future = torch.ones(config.context, config.context, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("future", future, persistent=False)  # (T, T), True where a character may not look

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)  # each (B, H, T, D)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, H, T, T)
        scores = scores.masked_fill(self.future[:T, :T], float("-inf"))
        mixed = scores.softmax(dim=-1) @ v  # (B, H, T, D)
        return self.out(mixed.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = SelfAttention(config)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * config.width, config.width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))  # (B, T, C)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, C)


class GPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(len(config.vocabulary), config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, len(config.vocabulary), bias=False)
        self.apply(self._init)
        self.head.weight = self.token.weight  # tied: one parameter reads characters and writes them

    def _init(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            # GPT-2's 0.02 belongs to its width of 768; a narrower model starts wider, or it learns slowly.
            nn.init.normal_(module.weight, std=0.02 * math.sqrt(768 / self.config.width))
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        T = ids.size(1)
        positions = torch.arange(T, device=ids.device)  # made where the ids are, not moved there
        x = self.token(ids) + self.position(positions)  # (B, T, C) + (T, C)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # (B, T, V)

    @torch.inference_mode()
    def generate(self, ids: torch.Tensor, count: int, temperature: float = 0.5) -> torch.Tensor:
        """Continue `ids` (B, T) by `count` characters, drawn on the device of the model."""
        self.eval()
        for _ in range(count):
            logits = self(ids[:, -self.config.context :])[:, -1]  # (B, V)
            next_id = torch.multinomial((logits / temperature).softmax(dim=-1), num_samples=1)  # (B, 1)
            ids = torch.cat([ids, next_id], dim=1)
        return ids


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    if torch.xpu.is_available():
        return "xpu"
    return "cpu"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small character GPT and let it write.")
    parser.add_argument("--device", default=best_device(), help="cpu, cuda, cuda:1, mps, xpu (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--sample", type=int, default=240, help="characters to write at the end (default: %(default)s)")
    parser.add_argument("--checkpoint", type=Path, help="where to save the model (default: a temporary file)")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.resume and args.checkpoint is None:
        parser.error("--resume needs --checkpoint PATH")
    return args


def load_text() -> str:
    descriptions = resources.files("sklearn.datasets.descr")
    files = sorted((f for f in descriptions.iterdir() if f.name.endswith(".rst")), key=lambda f: f.name)
    return "\n\n".join(f.read_text(encoding="utf-8") for f in files)


def draw_batch(
    data: torch.Tensor, batch_size: int, context: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random passages of `data`, and the same passages one character later: both (B, T)."""
    starts = torch.randint(len(data) - context, (batch_size,)).tolist()  # on the CPU, where the text is
    x = torch.stack([data[i : i + context] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + context] for i in starts])
    if device.type not in ("cpu", "mps"):  # MPS shares the host's memory and has none to pin
        x, y = x.pin_memory(), y.pin_memory()
    return x.to(device, non_blocking=True), y.to(device, non_blocking=True)


def loss_of(model: GPT, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = model(x)  # (B, T, V)
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


@torch.inference_mode()
def evaluate(model: GPT, data: torch.Tensor, device: torch.device) -> float:
    """Mean loss over all of `data`, cut into pieces of one context each."""
    model.eval()
    T = model.config.context
    count = (len(data) - 1) // T
    x = data[: count * T].view(count, T).to(device)
    y = data[1 : count * T + 1].view(count, T).to(device)
    return loss_of(model, x, y).item()


def learning_rate(step: int, steps: int, peak: float, warmup: int = 20) -> float:
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def make_optimizer(model: GPT, lr: float) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]  # biases and norms do not decay
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.99))


def save(path: Path, model: GPT, optimizer: torch.optim.Optimizer, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({"config": asdict(model.config), "step": step, **state}, path)


def load(path: Path, device: torch.device, lr: float) -> tuple[GPT, torch.optim.AdamW, int]:
    # To the host first: a checkpoint written on another kind of device can then be read here.
    state = torch.load(path, map_location="cpu", weights_only=True)
    model = GPT(Config(**state["config"])).to(device)
    model.load_state_dict(state["model"])
    optimizer = make_optimizer(model, lr)
    optimizer.load_state_dict(state["optimizer"])  # takes its state to where each parameter is
    return model, optimizer, state["step"]


def main() -> None:
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(args.seed)

    text = load_text()
    vocabulary = "".join(sorted(set(text)))
    index = {character: i for i, character in enumerate(vocabulary)}
    data = torch.tensor([index[character] for character in text])
    split = int(0.9 * len(data))
    train_data, test_data = data[:split], data[split:]

    if args.resume:
        model, optimizer, first_step = load(args.checkpoint, device, args.lr)
    else:
        model = GPT(Config(vocabulary)).to(device)
        optimizer, first_step = make_optimizer(model, args.lr), 0

    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(text):,} characters, {len(vocabulary)} different ones, {parameters:,} parameters, {device}")

    start = time.perf_counter()
    for step in range(first_step, args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        model.train()
        x, y = draw_batch(train_data, args.batch_size, model.config.context, device)
        loss = loss_of(model, x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        if step == first_step or (step + 1) % 50 == 0:
            print(f"step {step + 1:4d}/{args.steps}  loss {loss.item():.4f}", flush=True)
    seconds = time.perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        path = args.checkpoint or Path(folder) / "char_gpt.pt"
        save(path, model, optimizer, args.steps)
        reloaded, _, _ = load(path, device, args.lr)
    loss, reloaded_loss = evaluate(model, test_data, device), evaluate(reloaded, test_data, device)
    if loss != reloaded_loss:
        raise SystemExit(f"the checkpoint does not give the model back: loss {reloaded_loss} instead of {loss}")

    prompt = torch.tensor([[index[character] for character in "The data"]], device=device)  # (1, T)
    written = reloaded.generate(prompt, args.sample)[0].tolist()
    print("".join(vocabulary[i] for i in written))
    print("-" * 40)
    print(f"test loss {loss:.4f} after {args.steps} steps, {seconds:.1f} s on {device}")


if __name__ == "__main__":
    main()
