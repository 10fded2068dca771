"""Which tensors are called astray, which latent, and which neither: the false alarms that must not be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import wherry
from wherry import where


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.scale = torch.ones(2)


def strays(obj: Any) -> tuple[list[str], list[str]]:
    """The paths of the real ones, and of the latent ones."""
    found = where(obj).strays
    return [s.entry.path for s in found if not s.latent], [s.entry.path for s in found if s.latent]


@pytest.fixture(autouse=True)
def _two_devices() -> Any:
    with wherry.rehearse("cuda", count=2):
        yield


def on(*sizes: int, device: str = "cuda:0") -> list[torch.Tensor]:
    return [torch.ones(size, device=device) for size in sizes]


def test_before_the_move_it_is_latent_and_after_it_is_real() -> None:
    model = Net()

    assert strays(model) == ([], ["model.scale"])
    assert strays(model.to("cuda")) == (["model.scale"], [])


def test_what_is_said_of_it() -> None:
    (stray,) = where(Net().to("cuda")).strays

    assert stray.to_json() == {
        "path": "model.scale",
        "device": "cpu",
        "expected": ["cuda:0"],
        "latent": False,
        "why": "is a plain attribute of Net, neither a parameter nor a buffer",
        "fix": "In Net.__init__, write `self.register_buffer('scale', scale, persistent=False)`.",
    }


def test_real_ones_stand_before_latent_ones() -> None:
    model = Net().to("cuda")
    model.there = torch.ones(1, device="cuda")

    assert [s.entry.path for s in where(model).strays] == ["model.scale", "model.there"]


def test_a_model_on_two_devices_is_no_stray_but_each_half_has_its_own() -> None:
    model = nn.Sequential(Net().to("cuda:0"), Net().to("cuda:1"))
    model[0].scale = model[0].scale.to("cuda:0")
    model[1].scale = model[1].scale.to("cuda:0")

    assert strays(model) == (["model[1].scale"], ["model[0].scale"])


def test_a_layer_that_is_on_the_host_on_purpose_is_none() -> None:
    model = nn.Sequential(nn.Linear(2, 2).to("cuda:0"), nn.Linear(2, 2))

    assert strays(model) == ([], [])


def test_a_buffer_that_came_after_the_move() -> None:
    model = Net().to("cuda")
    model.scale = model.scale.to("cuda")
    model.lin.register_buffer("mask", torch.ones(2))

    (late, _) = where(model).strays

    assert (late.entry.path, late.latent) == ("model.lin.mask", False)
    assert late.why == "is registered in Linear, whose other tensors are on cuda:0: it came after the move"
    assert late.fix == "Move the module once more after that, model.to('cuda:0'), or make it there."


def test_a_buffer_that_came_late_does_not_hide_a_stray() -> None:
    model = nn.Linear(2, 2).to("cuda")
    model.register_buffer("mask", torch.ones(2))
    model.scale = torch.ones(2)

    assert strays(model) == (["model.mask", "model.scale"], [])


def test_a_module_on_meta_with_a_tensor_that_is_not() -> None:
    model = nn.Linear(2, 2, device="meta")
    model.scale = torch.ones(2)

    assert strays(model) == (["model.scale"], [])


def stepped(**options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), **options)
    for parameter in model.parameters():
        state = optimizer.state[parameter]
        state["step"] = torch.ones(())
        state["exp_avg"] = state["exp_avg_sq"] = torch.zeros_like(parameter)
    return model, optimizer


def test_state_that_is_not_where_its_parameter_is() -> None:
    model, optimizer = stepped()
    model.to("cuda")

    real, latent = strays({"model": model, "optimizer": optimizer})

    assert real == [f"state['optimizer'].state[state['model'].{name}]['exp_avg']" for name in ("weight", "bias")]
    assert latent == []


def test_the_step_on_the_host_is_one_only_if_the_optimizer_wants_it_on_the_device() -> None:
    model, optimizer = stepped(capturable=True)
    model.to("cuda")

    assert len(strays({"model": model, "optimizer": optimizer})[0]) == 4


def test_state_beside_its_parameter_is_none() -> None:
    model, optimizer = stepped()

    assert strays({"model": model, "optimizer": optimizer}) == ([], [])


BATCHES: dict[str, tuple[Any, list[str]]] = {
    "labels left on the host": (lambda: {"x": on(100)[0], "y": torch.ones(2)}, ["batch['y']"]),
    "images left on the host": (lambda: {"x": torch.ones(100), "y": on(2)[0]}, ["batch['x']"]),
    "one on the device among many on the host": (lambda: [torch.ones(50), torch.ones(60), on(1)[0]], ["batch[2]"]),
    "all on the host": (lambda: [torch.ones(5), torch.ones(6)], []),
    "all on the device": (lambda: on(5, 6), []),
    "a chunk for each device": (lambda: [*on(5, 5), *on(5, 5, device="cuda:1")], []),
    "chunks, and one on the host": (lambda: [*on(5), *on(5, device="cuda:1"), torch.ones(1)], ["batch[2]"]),
    "a small one on another device": (lambda: [*on(500, 500, 500), *on(5, device="cuda:1")], ["batch[3]"]),
    "a number on the host": (lambda: [*on(5), torch.tensor(3)], []),
    "lengths of a packed sequence": (
        lambda: nn.utils.rnn.pack_sequence([torch.ones(3, 2, device="cuda"), torch.ones(2, 2, device="cuda")]),
        [],
    ),
    "a tensor on meta": (lambda: [*on(5), torch.empty(3, device="meta")], []),
}


@pytest.mark.parametrize(("make", "expected"), BATCHES.values(), ids=BATCHES)
def test_a_batch(make: Any, expected: list[str]) -> None:
    assert strays(make()) == (expected, [])


def test_parts_of_a_training_state_are_judged_by_themselves() -> None:
    model = nn.Linear(2, 2).to("cuda")
    ema = {name: value.cpu() for name, value in model.state_dict().items()}

    assert strays({"model": model, "ema": ema, "batch": [*on(3), torch.ones(2)]}) == (["state['batch'][1]"], [])


def test_the_same_without_a_model_is_one_batch() -> None:
    """The twin."""
    assert strays({"ema": torch.ones(3), "batch": on(3)}) == (["batch['ema']"], [])
