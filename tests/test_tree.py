"""Nested objects, read without running anybody's code."""

from __future__ import annotations

import collections
from collections import OrderedDict, UserDict, deque
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from wherry import tree


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(slots=True)
class Slotted:
    tensor: Any


def captured(tensor: torch.Tensor) -> Any:
    return lambda x: x + tensor


T = torch.ones(2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mean", T.clone())
        self.plain = T
        self.heads = [nn.Linear(1, 1)]


PATHS = {
    "dict": ({"labels": T}, "x['labels']"),
    "list": ([0, [T]], "x[1][0]"),
    "namedtuple": (Pair(1, T), "x.right"),
    "dataclass with slots": (Slotted(T), "x.tensor"),
    "namespace": (SimpleNamespace(a=T), "x.a"),
    "ordered dict": (OrderedDict(a=T), "x['a']"),
    "default dict": (collections.defaultdict(list, a=[T]), "x['a'][0]"),
    "user dict": (UserDict({"a": T}), "x['a']"),
    "deque": (deque([T]), "x[0]"),
    "closure": (captured(T), "x.tensor"),
    "partial": (partial(torch.add, other=T), "x.keywords['other']"),
    "module, plain": (Net(), "x.plain"),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_tensor_is_found_by_the_path_a_person_would_write(name: str) -> None:
    value, path = PATHS[name]

    found = [f for f in tree.search([("x", value)]) if f.value is T]

    assert [f.text for f in found] == [path]


def test_steps_of_a_module_say_how_a_part_hangs_in_it() -> None:
    net = Net()

    kinds = {str(step.key): step.kind for step, _ in tree.children(net)}

    assert kinds["layer"] is tree.Kind.MODULE
    assert kinds["mean"] is tree.Kind.BUFFER
    assert kinds["plain"] is kinds["heads"] is tree.Kind.ATTRIBUTE
    assert "training" not in kinds


def test_containers_of_modules_are_indexed() -> None:
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(1, 1))})
    weight = model["a"][0].weight

    found = next(f for f in tree.search([("model", model)]) if f.value is weight)

    assert found.text == "model['a'][0].weight"


def test_the_state_of_an_optimizer_is_found() -> None:
    layer = nn.Linear(1, 1)
    optimizer = torch.optim.Adagrad(layer.parameters())

    texts = [f.text for f in tree.search([("opt", optimizer)]) if tree.is_tensor(f.value)]

    assert "opt.state[p]['sum']" in texts
    assert "opt.param_groups[0]['params'][0]" in texts


def test_a_search_ends_at_its_budget() -> None:
    assert len(list(tree.search([("x", [[[] for _ in range(100)] for _ in range(100)])], most=50))) == 50


def test_attributes_are_read_statically() -> None:
    class Lazy:
        @property
        def tensor(self) -> torch.Tensor:
            raise AssertionError("a property ran")

    assert isinstance(tree.attribute(Lazy(), "tensor"), property)
    assert tree.attribute(Lazy(), "nothing") is tree.MISSING
    assert tree.attribute(Net(), "mean") is not tree.MISSING
    assert tree.item({"a": 1}, "a") == 1
    assert tree.item([1, 2], -1) == 2
    assert tree.item([1], 5) is tree.MISSING


@pytest.mark.parametrize(
    "make", [list, tuple, deque, set, lambda it: dict.fromkeys(it, 0)], ids=["list", "tuple", "deque", "set", "dict"]
)
def test_of_many_parts_the_first_are_given_or_all(make: Any) -> None:
    many = make(range(3_000))

    assert len(list(tree.children(many))) == 2_000
    assert len(list(tree.children(many, most=5))) == 5
    assert len(list(tree.children(many, most=None))) == 3_000
