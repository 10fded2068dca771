"""Each program with one tensor left behind fails where, and as, the real device makes it fail.

Type, words and line are those of the host code of PyTorch's CUDA build, 2.13.0 and 2.14.1, which was run on these very
variants with stand-ins for NVIDIA's libraries. Kernels compute nothing there, so what depends on values could not be
asked; such a row says so. Words are compared on CUDA, from 2.8 on; elsewhere type and line.
"""

from __future__ import annotations

import contextlib
import io
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

from wherry.rehearse import rehearse
from wherry.rehearse.wording import torch_release

sys.path.insert(0, str(Path(__file__).parent))
try:
    import _running as programs
finally:
    sys.path.pop(0)

TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


def one_device(argument: str, found: str, common: str, op: str) -> str:
    return (
        f"Expected all tensors to be on the same device, but got {argument} is on {found}, different from other tensors on "
        f"{common} (when checking argument in method wrapper_CUDA_{op})"
    )


@dataclass(frozen=True)
class Stray:
    """A program, what is changed in it, the line that fails then, and what CUDA says."""

    program: str
    old: str
    new: str
    line: str
    message: str
    kind: type[Exception] = RuntimeError

    @property
    def source(self) -> str:
        return changed(self.program, self.old, self.new)

    @property
    def name(self) -> str:
        return f"{self.program}-{self.line[:40]}"


def changed(program: str, old: str, new: str) -> str:
    text = (programs.FOLDER / f"{program}.py").read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new)


STRAYS = (
    Stray(
        "accumulation",
        "running = torch.zeros((), device=device)",
        "running = torch.zeros(())",
        "running += loss.detach()",
        TWO_DEVICES,
    ),
    Stray(
        "accumulation",
        "x, y = x.to(device), y.to(device)",
        "x = x.to(device)",
        "loss = criterion(model(x), y) / accumulate",
        one_device("target", "cpu", "cuda:0", "_huber_loss"),
    ),
    Stray(
        "averaging",
        "name: p.detach().clone()",
        "name: p.detach().cpu()",
        "self.shadow[name].lerp_(p, 1 - self.decay)",
        TWO_DEVICES,
    ),
    Stray(
        "averaging",
        "swa = AveragedModel(model, device=device)",
        "swa = AveragedModel(model, device='cpu')",
        "update_bn(loader, swa, device=device)",
        one_device("mat1", "cuda:0", "cpu", "addmm"),
    ),
    Stray(
        "checkpointing",
        "x, labels = x.to(device), labels.to(device)",
        "labels = labels.to(device)",
        "x = self.inputs(x)",
        one_device("mat1", "cpu", "cuda:0", "addmm"),
    ),
    Stray(
        "cnn",
        "            labels = labels.to(device, non_blocking=True)\n",
        "",
        "loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)",
        one_device("target", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    Stray(
        "cnn",
        "model(images.to(device)).argmax",
        "model(images).argmax",
        "return self.classifier(self.features(x).flatten(1))",
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
    ),
    Stray(
        "codebook",
        'self.register_buffer("counts", torch.ones(n))',
        "self.counts = torch.ones(n)",
        "self.counts.mul_(0.9).add_(chosen.sum(dim=0), alpha=0.1)",
        TWO_DEVICES,
    ),
    Stray(
        "codebook",
        'self.register_buffer("codes", torch.randn(n, width))',
        "self.codes = torch.randn(n, width)",
        "index = torch.cdist(x, codes).argmin(dim=1)",
        "X1 and X2 must have the same device type. X1: cuda X2: cpu",
    ),
    Stray(
        "contrastive",
        "dtype=torch.bool, device=z.device",
        "dtype=torch.bool",
        'similarity = similarity.masked_fill(itself, float("-inf"))',
        "expected self and mask to be on the same device, but got mask on cpu and self on cuda:0",
    ),
    Stray(
        "contrastive",
        "torch.arange(2 * n, device=z.device)",
        "torch.arange(2 * n)",
        "return F.cross_entropy(similarity, partner)",
        one_device("target", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    Stray(
        "data_parallel",
        "x, labels = x.to(device), labels.to(device)",
        "x = x.to(device)",
        "loss = F.cross_entropy(model(x), labels)",
        one_device("target", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    Stray(
        "diffusion",
        'self.register_buffer("alpha_bar", torch.cumprod(1 - beta, dim=0))',
        "self.alpha_bar = torch.cumprod(1 - beta, dim=0)",
        "signal = self.alpha_bar[t].unsqueeze(1)",
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
    Stray(
        "diffusion",
        "torch.arange(8, device=t.device)",
        "torch.arange(8)",
        "angles = t.unsqueeze(1) * frequency",
        TWO_DEVICES,
    ),
    Stray(
        "distillation",
        "teacher = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)).to(device)",
        "teacher = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))",
        "loss = loss_of(model(x), x, labels)",
        one_device("mat1", "cuda:0", "cpu", "addmm"),
    ),
    Stray(
        "dqn",
        "actions = torch.tensor(actions, device=device)",
        "actions = torch.tensor(actions)",
        "q = network(states).gather(1, actions.unsqueeze(1)).squeeze(1)",
        one_device("index", "cpu", "cuda:0", "gather"),
    ),
    Stray(
        "dqn",
        "dones = torch.tensor(dones, device=device)",
        "dones = torch.tensor(dones)",
        "expected = torch.where(dones, rewards, rewards + 0.9 * best)",
        TWO_DEVICES,
    ),
    Stray(
        "dqn",
        "torch.tensor([state], device=device)",
        "torch.tensor([state])",
        "action = network(torch.tensor([state])).argmax(dim=1).item()",
        one_device("mat1", "cpu", "cuda:0", "addmm"),
    ),
    Stray(
        "experts",
        'self.register_buffer("load", torch.zeros(n, dtype=torch.long))',
        "self.load = torch.zeros(n, dtype=torch.long)",
        "self.load += counts",
        TWO_DEVICES,
    ),
    Stray(
        "experts",
        "out = torch.zeros_like(x)",
        "out = torch.zeros(x.shape)",
        "out.index_add_(0, rows, weights[rows, column].unsqueeze(1) * expert(x[rows]))",
        one_device("index", "cuda:0", "cpu", "index_add_"),
    ),  # by what the same op said elsewhere
    Stray("flow", 'self.register_buffer("mask", mask)', "self.mask = mask", "kept = x * self.mask", TWO_DEVICES),
    Stray(
        "flow", "torch.zeros(len(x), device=x.device)", "torch.zeros(len(x))", "total += log_determinant", TWO_DEVICES
    ),
    Stray(
        "gan",
        "zeros = torch.zeros(batch, 1, device=device)",
        "zeros = torch.zeros(batch, 1)",
        "loss_d = bce(discriminator(real), ones) + bce(discriminator(fake.detach()), zeros)",
        TWO_DEVICES,
    ),
    Stray(
        "gan",
        "z = torch.randn(batch, latent, generator=numbers).to(device)",
        "z = torch.randn(batch, latent, generator=numbers)",
        "fake = generator(z)",
        one_device("mat1", "cpu", "cuda:0", "addmm"),
    ),
    Stray(
        "gpt",
        "torch.arange(tokens.shape[1], device=tokens.device)",
        "torch.arange(tokens.shape[1])",
        "x = self.token(tokens) + self.position(positions)",
        one_device("index", "cpu", "cuda:0", "_index_select"),
    ),
    Stray(
        "gpt",
        "prompt = data[:4].unsqueeze(0).to(device)",
        "prompt = data[:4].unsqueeze(0)",
        "x = self.token(tokens) + self.position(positions)",
        one_device("index", "cpu", "cuda:0", "_index_select"),
    ),
    Stray(
        "graph",
        "edges.to(device)",
        "edges",
        "degree = torch.zeros(len(x), device=x.device).scatter_add_(0, target, ones)",
        one_device("index", "cpu", "cuda:0", "scatter_add_"),
    ),
    Stray(
        "graph",
        "torch.zeros(len(x), messages.shape[1], device=x.device)",
        "torch.zeros(len(x), messages.shape[1])",
        "return torch.zeros(len(x), messages.shape[1]).index_add(0, target, messages) + self.bias",
        one_device("index", "cuda:0", "cpu", "index_add"),
    ),
    Stray(
        "lora",
        "(torch.randn(rank, base.in_features) / base.in_features**0.5).to(device)",
        "torch.randn(rank, base.in_features) / base.in_features**0.5",
        "return self.base(x) + self.scale * F.linear(F.linear(x, self.a), self.b)",
        one_device("mat2", "cpu", "cuda:0", "mm"),
    ),
    Stray(
        "meta_learning",
        "(t.to(device) for t in task(generator))",
        "task(generator)",
        "loss = F.mse_loss(functional_call(model, parameters, (x,)), y)",
        one_device("mat1", "cpu", "cuda:0", "addmm"),
    ),
    Stray(
        "mixed_precision",
        "images, labels = images.to(device), labels.to(device)",
        "images = images.to(device)",
        "loss = F.cross_entropy(logits.float(), labels)",
        one_device("target", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    Stray(
        "mixed_precision",
        "images, labels = images.to(device), labels.to(device)",
        "labels = labels.to(device)",
        "logits = model(images)",
        "Input type (float) and bias type (c10::Half) should be the same",
    ),
    Stray(
        "model_parallel",
        "hidden.to(self.second)",
        "hidden",
        "outputs.append(self.decoder(hidden))",
        one_device("mat1", "cuda:0", "cuda:1", "addmm"),
    ),
    Stray(
        "model_parallel",
        "labels.to(second)",
        "labels",
        "loss = F.cross_entropy(logits, labels)",
        one_device("target", "cpu", "cuda:1", "nll_loss_forward"),
    ),
    Stray(
        "parametrized",
        "real, fake = real.to(device), fake.to(device)",
        "real = real.to(device)",
        "distance = critic(real).mean() - critic(fake).mean()",
        one_device("mat1", "cpu", "cuda:0", "addmm"),
    ),
    Stray("per_sample", "noise.to(device)", "noise", "p.grad = (clipped + noise) / len(x)", TWO_DEVICES),
    Stray(
        "per_sample",
        "x, labels = x.to(device), labels.to(device)",
        "labels = labels.to(device)",
        "return F.cross_entropy(functional_call(model, parameters, (x.unsqueeze(0),)), label.unsqueeze(0))",
        one_device("mat2", "cuda:0", "cpu", "mm"),
    ),
    Stray(
        "per_sample",
        "x, labels = x.to(device), labels.to(device)",
        "x = x.to(device)",
        "return F.cross_entropy(functional_call(model, parameters, (x.unsqueeze(0),)), label.unsqueeze(0))",
        one_device("index", "cpu", "cuda:0", "gather"),
    ),
    Stray(
        "per_sample",
        "p.grad = (clipped + noise.to(device)) / len(x)",
        "p.grad = (clipped.cpu() + noise) / len(x)",
        "p.grad = (clipped.cpu() + noise) / len(x)",
        "attempting to assign a gradient with device type 'cpu' to a tensor with device type 'cuda'.",
    ),
    Stray(
        "physics",
        "slope = torch.ones(1, 1, device=device)",
        "slope = torch.ones(1, 1)",
        "loss = residual.square().mean() + u0.square().sum() + (derivative(u0, start) - slope).square().sum()",
        TWO_DEVICES,
    ),
    Stray(
        "recommender",
        "bags, offsets = bags.to(device), offsets.to(device)",
        "bags = bags.to(device)",
        "item = self.item(item) + self.tag(tags, offsets)",
        one_device("offsets", "cpu", "cuda:0", "__embedding_bag"),
    ),
    Stray(
        "recommender",
        "user, item, rating = user.to(device), item.to(device), rating.to(device)",
        "user, item = user.to(device), item.to(device)",
        "loss = F.mse_loss(predicted, rating)",
        TWO_DEVICES,
    ),
    Stray(
        "recurrent",
        "model(tokens, lengths)",
        "model(tokens, lengths.to(device))",
        "packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)",
        "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
    ),
    Stray(
        "recurrent",
        "self.gru(outputs)",
        "self.gru(outputs, torch.zeros(2, len(lengths), 24))",
        "outputs, hidden = self.gru(outputs, torch.zeros(2, len(lengths), 24))",
        one_device("index", "cuda:0", "cpu", "_index_select"),
    ),
    Stray(
        "reinforce",
        "returns = torch.tensor(returns, device=device)",
        "returns = torch.tensor(returns)",
        "advantages = returns - values.detach()",
        TWO_DEVICES,
    ),  # by what the same op said elsewhere
    Stray(
        "reinforce",
        "policy.probs.detach().cpu()",
        "policy.probs.detach()",
        "action = torch.multinomial(policy.probs.detach(), 1, generator=generator).squeeze()",
        "Expected a 'cuda' device type for generator but found 'cpu'",
    ),
    Stray(
        "reinforce",
        "policy.log_prob(action.to(device))",
        "policy.log_prob(action)",
        "log_probabilities.append(policy.log_prob(action))",
        one_device("index", "cpu", "cuda:0", "gather"),
    ),  # by what the same op said elsewhere
    Stray(
        "resume",
        'map_location="cpu"',
        "map_location=self.device",
        'self.generator.set_state(state["generator"])',
        "RNG state must be a torch.ByteTensor",
        kind=TypeError,
    ),
    Stray(
        "resume",
        "x, y = x.to(self.device), y.to(self.device)",
        "x = x.to(self.device)",
        "loss = (self.model(x) - y).square().mean()",
        TWO_DEVICES,
    ),
    Stray(
        "segmentation",
        "(torch.rand(8, 1, 1, 1, generator=generator) < 0.5).to(device)",
        "torch.rand(8, 1, 1, 1, generator=generator) < 0.5",
        "images, masks = torch.where(flip, images.flip(3), images), torch.where(flip, masks.flip(3), masks)",
        TWO_DEVICES,
    ),
    Stray(
        "segmentation",
        "weight = torch.tensor([3.0], device=device)",
        "weight = torch.tensor([3.0])",
        "loss = F.binary_cross_entropy_with_logits(logits, masks, pos_weight=weight) + dice(logits, masks)",
        TWO_DEVICES,
    ),
    Stray(
        "translation",
        'self.register_buffer("positions", self.encoding(16, width), persistent=False)',
        "self.positions = self.encoding(16, width)",
        "return self.embedding(tokens) + self.positions[: tokens.shape[1]]",
        TWO_DEVICES,
    ),
    Stray(
        "vae",
        "noise = torch.randn(32, 4, generator=generator).to(device)",
        "noise = torch.randn(32, 4, generator=generator)",
        "z = mean + torch.exp(0.5 * log_variance) * noise",
        TWO_DEVICES,
    ),
)

HARMLESS = (
    ("contrastive", "nn.Parameter(torch.tensor(-1.0, device=device))", "nn.Parameter(torch.tensor(-1.0))"),
    ("graph", "known.to(device)", "known"),
    ("meta_learning", "nn.Parameter(torch.tensor(-4.0, device=device))", "nn.Parameter(torch.tensor(-4.0))"),
    ("meta_learning", "total = torch.zeros((), device=device)", "total = torch.zeros(())"),
    ("resume", 'state["best"].to(self.device)', 'state["best"]'),
    (
        "translation",
        "generate_square_subsequent_mask(target.shape[1], device=target.device)",
        "generate_square_subsequent_mask(target.shape[1])",
    ),
)
"""Tensors left behind that a device accepts: 0-dim operands of binary ops, indices on the host, a mask not looked at."""

OTHER_WORDS = {
    ("cnn", "model(images).argmax"): "the check of the convolution's kernel speaks before the one of its front",
    (
        "codebook",
        "self.codes = torch.randn(n, width)",
    ): "the check of the matrix product inside cdist speaks before cdist's own",
}
"""Variants whose type and line are right and whose words are not, with the reason."""


def failure(stray: Stray, device: str) -> tuple[BaseException | None, str]:
    """What a changed program raises where it is now, and the innermost line of its own on the way there."""
    module = programs.load(stray.program, stray.source)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            module.train(device)
    except Exception as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == module.__file__]
        assert own[-1] is not None
        return error, stray.source.splitlines()[own[-1] - 1].strip()
    return None, ""


SOUGHT = [
    pytest.param(
        stray,
        id=stray.name,
        marks=[pytest.mark.xfail(strict=True, reason="a CPU generator takes a state that is on a device")]
        if stray.kind is TypeError
        else [],
    )
    for stray in STRAYS
]


@pytest.mark.parametrize("stray", SOUGHT)
def test_stray_fails_on_cuda_in_the_words_of_cuda(stray: Stray) -> None:
    with rehearse("cuda", count=2 if stray.program in programs.SPLIT else 1):
        error, line = failure(stray, "cuda")

    assert (type(error), line) == (stray.kind, stray.line)
    if torch_release() >= (2, 8):
        alike = str(error).startswith(stray.message)
        assert alike is ((stray.program, stray.new) not in OTHER_WORDS), str(error)


@pytest.mark.parametrize("backend", ["mps", "rocm", "xpu"])
@pytest.mark.parametrize("stray", STRAYS[::4], ids=lambda stray: stray.name)
def test_stray_fails_on_the_other_devices_too(stray: Stray, backend: str) -> None:
    if backend == "mps" and stray.program == "model_parallel":
        pytest.skip("there is one MPS device, so nothing strays")
    with rehearse(backend, count=2 if stray.program in programs.SPLIT and backend != "mps" else 1):
        error, line = failure(stray, programs.DEVICE_TYPES[backend])

    assert (type(error), line) == (stray.kind, stray.line)


@pytest.mark.parametrize("stray", STRAYS[::4], ids=lambda stray: stray.name)
def test_stray_goes_unnoticed_on_the_cpu(stray: Stray) -> None:
    """The twin: it is the device that fails, not the changed text."""
    assert failure(stray, "cpu") == (None, "")


@pytest.mark.parametrize(("program", "old", "new"), HARMLESS)
def test_what_a_device_accepts_is_accepted(program: str, old: str, new: str) -> None:
    with rehearse("cuda"), contextlib.redirect_stdout(io.StringIO()):
        programs.load(program, changed(program, old, new)).train("cuda")


def test_every_program_has_a_stray() -> None:
    assert {stray.program for stray in STRAYS} == set(programs.NAMES)
