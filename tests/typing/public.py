"""How the public names are used, for the type checker: `make lint` reads these functions, nothing calls them.

Lines that must be refused carry an ignore; the checker reports an ignore that is not needed.
"""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import assert_type

import wherry
from wherry import Choice, backends
from wherry.backends import Backend, Memory, Presence


def choose() -> None:
    choice = wherry.pick()
    assert_type(choice, Choice)
    assert_type(wherry.pick("cuda", dtype=torch.float64, memory="6GiB"), Choice)
    assert_type(wherry.pick(torch.device("mps"), dtype="float16", memory=2**30), Choice)
    assert_type(choice.device, torch.device)
    assert_type(choice.type, str)
    assert_type(choice.index, int | None)
    assert_type(choice.explain(), str)

    torch.zeros(2, device=choice).to(choice)
    torch.nn.Linear(2, 2, device=choice)

    wherry.pick("cuda", torch.float64)  # pyright: ignore[reportCallIssue]
    wherry.pick(dtype=64)  # pyright: ignore[reportArgumentType]
    wherry.pick(memory=1.5)  # pyright: ignore[reportArgumentType]


def ask() -> None:
    backend = backends.find("rocm")
    assert_type(backend, Backend)
    assert_type(backends.all(), tuple[Backend, ...])
    assert_type(backend.probe(), Presence)
    assert_type(backend.memory(0), Memory | None)
    assert_type(backend.can_hold("float64", 0), bool)


def handle(error: wherry.WherryError) -> None:
    if isinstance(error, wherry.UnknownDevice):
        assert_type(error.given, str)
        assert_type(error.nearest, str | None)


def rehearse() -> None:
    with wherry.rehearse("cuda", count=2, memory="8GiB") as rehearsal:
        assert_type(rehearsal, wherry.Rehearsal)
        assert_type(rehearsal.backend, Backend)
        assert_type(rehearsal.device, str)


def list_them(model: torch.nn.Linear) -> None:
    found = wherry.where(model, name="net")
    assert_type(found, wherry.Inventory)
    assert_type(found.nbytes, int)
    assert_type(found.text(depth=2, all=True), str)

    wherry.where(model, 3)  # pyright: ignore[reportCallIssue]


def compile_them(model: torch.nn.Linear) -> None:
    assert_type(wherry.compile(model), torch.nn.Linear)
    assert_type(wherry.compile(model, "cuda", strict=True, mode="reduce-overhead", recompile_limit=4), torch.nn.Linear)
    assert_type(step(3), float)

    wherry.compile(model, "cuda", "inductor")  # pyright: ignore[reportCallIssue]
    wherry.compile("cuda")  # pyright: ignore[reportCallIssue, reportArgumentType]
    wherry.compile(model, colour=1)  # pyright: ignore[reportCallIssue]
    step("3")  # pyright: ignore[reportArgumentType]


def moving(batch: dict[str, torch.Tensor], model: torch.nn.Linear) -> None:
    assert_type(wherry.move(batch, "cuda"), dict[str, torch.Tensor])
    assert_type(wherry.move(model, torch.device("cpu"), strays="error"), torch.nn.Linear)
    assert_type(wherry.move(batch, wherry.pick(), dtype=torch.float16, skip=("labels", list)), dict[str, torch.Tensor])
    assert_type(wherry.move(batch, "numpy"), Any)
    wherry.move(batch)  # pyright: ignore[reportCallIssue]
    wherry.move(batch, "cuda", strays="loudly")  # pyright: ignore[reportCallIssue, reportArgumentType]


@wherry.compile
def step(batch: int) -> float:
    return float(batch)


@wherry.compile(device="cuda", fullgraph=True)
def other_step(batch: int) -> float:
    return step(batch)


@wherry.rehearse("mps")
def train(epochs: int) -> float:
    return float(epochs)


def decorated() -> None:
    assert_type(train(3), float)
    train("3")  # pyright: ignore[reportArgumentType]
