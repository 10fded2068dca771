"""Tensors that a module holds and `Module.to` does not move: found, named, and told how to hold them instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from wherry import StrayTensors, WherryError, move


class Model(nn.Module):
    """Properly made, but for what a test puts into it."""

    def __init__(self, **more: object) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        vars(self).update(more)  # as plain attributes, whatever they are


class Outer(Model):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


class Encoding:
    def __init__(self, table: Tensor) -> None:
        self.table = table


def capturing(mask: Tensor) -> Callable[[], Tensor]:
    def masked() -> Tensor:
        return mask

    return masked


# What is put into the model, the tensor in it, the name by which it is told, the lasting fix.
ROWS: dict[str, tuple[Callable[[], Model], Callable[[Any], Tensor], str, str]] = {
    "attribute": (lambda: Model(mask=torch.ones(2)), lambda m: m.mask, "mask", "register_buffer"),
    "list": (lambda: Model(masks=[torch.ones(2)]), lambda m: m.masks[0], r"masks\[0\]", "register_buffer"),
    "dict": (lambda: Model(cache={"k": torch.ones(2)}), lambda m: m.cache["k"], r"cache\['k'\]", "register_buffer"),
    "object": (
        lambda: Model(code=Encoding(torch.ones(2))),
        lambda m: m.code.table,
        r"code\.table",
        "that registers them",
    ),
    "closure": (
        lambda: Model(masked=capturing(torch.ones(2))),
        lambda m: m.masked(),
        "mask",
        "register_buffer",
    ),
    "parameters in a list": (
        lambda: Model(weights=[nn.Parameter(torch.ones(2))]),
        lambda m: m.weights[0],
        r"weights\[0\]",
        "ParameterList",
    ),
    "parameters in a dict": (
        lambda: Model(weights={"a": nn.Parameter(torch.ones(2))}),
        lambda m: m.weights["a"],
        r"weights\['a'\]",
        "ParameterDict",
    ),
    "modules in a list": (
        lambda: Model(blocks=[nn.Linear(2, 2, bias=False)]),
        lambda m: m.blocks[0].weight,
        r"blocks\[0\]",
        "ModuleList",
    ),
    "modules in a dict": (
        lambda: Model(heads={"a": nn.Linear(2, 2, bias=False)}),
        lambda m: m.heads["a"].weight,
        r"heads\['a'\]",
        "ModuleDict",
    ),
    "in a submodule": (
        lambda: Outer(Model(mask=torch.ones(2))),
        lambda m: m.inner.mask,
        r"inner\.mask",
        "register_buffer",
    ),
}
ALL = pytest.mark.parametrize("name", ROWS)


@ALL
def test_a_stray_is_told_by_its_name_and_with_the_lasting_fix(name: str, cuda: str) -> None:
    build, _, called, fix = ROWS[name]

    with pytest.warns(UserWarning, match=called) as told:
        move(build(), cuda)

    assert fix in str(told[0].message)


@ALL
def test_a_stray_is_left_where_it_was_when_it_is_only_told(name: str, cuda: str) -> None:
    build, stray, called, _ = ROWS[name]
    model = build()

    with pytest.warns(UserWarning, match=called):
        move(model, cuda)

    assert str(stray(model).device) == "cpu"
    assert str(model.layer.weight.device) == cuda


@ALL
def test_a_stray_moves_when_it_is_asked_for(name: str, cuda: str) -> None:
    build, stray, _, _ = ROWS[name]
    model = build()

    moved = move(model, cuda, strays="move")

    assert moved is model
    assert str(stray(model).device) == cuda


@ALL
def test_a_stray_is_refused_before_anything_moves(name: str, cuda: str) -> None:
    build, stray, called, _ = ROWS[name]
    model, other = build(), nn.Linear(2, 2)

    with pytest.raises(StrayTensors, match=called) as refused:
        move([other, model], cuda, strays="error")

    assert isinstance(refused.value, WherryError)
    places = {str(each.device) for each in (*model.parameters(), *other.parameters(), stray(model))}
    assert places == {"cpu"}


@ALL
def test_a_stray_is_passed_over_when_it_is_to_be_ignored(name: str, cuda: str) -> None:
    build, stray, _, _ = ROWS[name]
    model = build()

    move(model, cuda, strays="ignore")

    assert str(stray(model).device) == "cpu"
    assert str(model.layer.weight.device) == cuda


def test_a_model_without_strays_is_told_nothing(cuda: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.LSTM(2, 2), nn.MultiheadAttention(2, 1))

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        move(model, cuda)

    assert told == []


def test_a_tensor_that_is_on_the_device_is_no_stray(cuda: str) -> None:
    model = Model(mask=torch.ones(2, device=cuda))

    move(model, cuda)

    assert str(model.layer.weight.device) == cuda


def test_a_second_name_of_a_parameter_is_no_stray(cuda: str) -> None:
    model = Model()
    vars(model)["alias"] = model.layer

    move(model, cuda)

    assert str(model.alias.weight.device) == cuda


def test_all_strays_are_told_at_once(cuda: str) -> None:
    model = Model(first=torch.ones(2), second=[torch.ones(2)])

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        move({"model": model}, cuda)

    assert len(told) == 1
    assert "first" in str(told[0].message)
    assert "second[0]" in str(told[0].message)
    assert told[0].filename == __file__


def test_views_of_parameters_follow_them_when_strays_move(cuda: str) -> None:
    model = Model()
    vars(model)["rows"] = list(model.layer.weight.detach())

    move(model, cuda, strays="move")
    with torch.no_grad():
        model.layer.weight.fill_(7)

    assert model.rows[0].tolist() == [7.0, 7.0]
