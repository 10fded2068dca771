"""The same claims on the real device and on its rehearsal: what a rehearsal promises is what the hardware does.

The real half runs where this machine has an accelerator that its torch can use; elsewhere it is skipped, and the
rehearsed half still runs, once for each backend. Short on purpose: one run on borrowed hardware.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wherry import backends
from wherry.backends import State
from wherry.rehearse import rehearse

ACCELERATORS = [backend.name for backend in backends.all() if backend.priority > 0 and backend.virtual is not None]


@pytest.fixture(params=["real", *ACCELERATORS])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device to compute on: this machine's own, and each rehearsed one."""
    if request.param != "real":
        with rehearse(request.param) as rehearsal:
            yield rehearsal.device
        return
    here = [b for b in backends.all() if b.name in ACCELERATORS and b.probe().state is State.PRESENT]
    if not here:
        pytest.skip("this machine has no accelerator that this torch can use, so only the rehearsed half ran")
    yield f"{here[0].device_type}:0"


def test_tensor_says_where_it_is(device: str) -> None:
    x = torch.zeros(2).to(device)

    assert str(x.device) == device
    assert x.get_device() == 0
    assert not x.is_cpu
    assert f"device='{device}'" in repr(x)
    assert x.to(device) is x
    assert type(x) is Tensor


REFUSED: dict[str, Callable[[str], object]] = {
    "add": lambda d: torch.zeros(2, device=d) + torch.zeros(2),
    "add on the left": lambda d: torch.zeros(2) + torch.zeros(2, device=d),
    "device scalar": lambda d: torch.zeros(2) + torch.zeros((), device=d),
    "mm": lambda d: torch.zeros(2, 2, device=d) @ torch.zeros(2, 2),
    "linear": lambda d: nn.Linear(2, 2).to(d)(torch.zeros(1, 2)),
    "cat": lambda d: torch.cat([torch.zeros(2, device=d), torch.zeros(2)]),
    "embedding": lambda d: nn.Embedding(3, 2).to(d)(torch.zeros(1, dtype=torch.long)),
    "cross_entropy": lambda d: F.cross_entropy(torch.zeros(2, 3, device=d), torch.zeros(2, dtype=torch.long)),
    "conv": lambda d: nn.Conv2d(1, 1, 1)(torch.zeros(1, 1, 2, 2, device=d)),
    "device index": lambda d: torch.zeros(2)[torch.zeros(1, dtype=torch.long, device=d)],
    "generator": lambda d: torch.rand(2, device=d, generator=torch.Generator()),
    "out": lambda d: torch.add(torch.zeros(2, device=d), 1, out=torch.zeros(2)),
    "numpy": lambda d: torch.zeros(2, device=d).numpy(),
    "grad": lambda d: setattr(torch.zeros(2, device=d, requires_grad=True), "grad", torch.zeros(2)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_stray_is_refused(name: str, device: str) -> None:
    with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
        REFUSED[name](device)


ACCEPTED: dict[str, Callable[[str], Tensor]] = {
    "host scalar": lambda d: torch.zeros(2, device=d) + torch.tensor(1.0),
    "host scalar on the left": lambda d: torch.tensor(1.0) * torch.zeros(2, device=d),
    "host index": lambda d: torch.zeros(2, device=d)[torch.tensor([0])],
    "copy_": lambda d: torch.zeros(2, device=d).copy_(torch.ones(2)),
    "where with a host scalar": lambda d: torch.where(
        torch.ones(2, device=d) > 0, torch.zeros(2, device=d), torch.tensor(1.0)
    ),
    "like": lambda d: torch.zeros_like(torch.zeros(2, device=d)),
    "one_hot": lambda d: F.one_hot(torch.zeros(2, dtype=torch.long, device=d), 3),
    "attention": lambda d: F.scaled_dot_product_attention(*[torch.ones(1, 1, 4, 8, device=d)] * 3, is_causal=True),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_exception_to_the_law_runs_on_the_device(name: str, device: str) -> None:
    assert str(ACCEPTED[name](device).device) == device


@pytest.mark.parametrize(
    ("code", "text"), [("add", "at least two devices, {device} and cpu!"), ("numpy", "can't convert {device}")]
)
def test_words_name_the_device(code: str, text: str, device: str) -> None:
    with pytest.raises((RuntimeError, TypeError)) as caught:
        REFUSED[code](device)

    assert text.format(device=device) in str(caught.value)


def test_module_trains_and_keeps_its_parameters(device: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    before = [id(p) for p in model.parameters()]
    model.to(device)
    x = torch.randn(16, 2, device=device)
    losses = []

    for _ in range(5):
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert [id(p) for p in model.parameters()] == before
    assert losses[-1] < losses[0]
    assert {str(t.device) for t in [*model.parameters(), *model.buffers()]} == {device}


def test_gradient_of_a_movement_comes_back(device: str) -> None:
    x = torch.ones(3, requires_grad=True)

    (x.to(device) * 2).sum().backward()

    assert x.grad is not None
    assert (x.grad.device.type, x.grad.tolist()) == ("cpu", [2, 2, 2])


def test_seed_makes_numbers_come_again(device: str) -> None:
    def draw() -> Any:
        torch.manual_seed(3)
        return torch.rand(4, device=device).tolist()

    host = torch.get_rng_state()
    first = draw()
    torch.manual_seed(3)
    untouched = torch.get_rng_state()
    torch.rand(4, device=device)

    assert draw() == first
    torch.manual_seed(3)
    torch.rand(4, device=device)
    assert torch.equal(torch.get_rng_state(), untouched)
    torch.set_rng_state(host)


def test_checkpoint_comes_back_to_the_device(device: str) -> None:
    file = io.BytesIO()
    torch.save(torch.arange(3.0, device=device), file)
    file.seek(0)
    assert str(torch.load(file).device) == device
    file.seek(0)
    assert torch.load(file, map_location="cpu").device.type == "cpu"


def test_autocast_casts_and_leaves(device: str) -> None:
    x = torch.ones(2, 2, device=device)
    with torch.autocast(torch.device(device).type, dtype=torch.float16):
        inside = (x @ x).dtype

    assert (inside, (x @ x).dtype) == (torch.float16, torch.float32)


@pytest.mark.parametrize("asked", ["cuda", "mps", "xpu"])
def test_absent_accelerator_is_refused(asked: str, device: str) -> None:
    if asked == torch.device(device).type:
        assert torch.zeros(1, device=asked).device.type == asked
        return
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1, device=asked)
