"""What the walk goes into and what not, and the order that decides names."""

from __future__ import annotations

import dataclasses
import functools
import io
import logging
import re
import threading
import types
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from wherry import where
from wherry.where.strays import left_behind
from wherry.where.walk import Again, Leaf, walk


def paths(obj: Any, name: str = "x") -> list[str]:
    return [leaf.path() for leaf in walk([(name, obj)]) if isinstance(leaf, Leaf)]


def test_what_is_registered_gets_its_name_before_what_is_not() -> None:
    model = nn.Module()
    model.first = [nn.Linear(1, 1, bias=False)]
    model.second = model.first[0]

    assert paths(model) == ["x.second.weight"]


def test_optimizers_wait_until_parameters_have_names() -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD([model.weight])
    optimizer.state[model.weight]["sum"] = torch.ones(1)

    assert "x[0].state[x[1].weight]['sum']" in paths([optimizer, model])


def test_a_module_met_again_is_told_once_more_but_not_walked() -> None:
    inner = nn.Linear(1, 1)

    found = list(walk([("x", [inner, inner])]))

    assert [type(one) for one in found] == [Leaf, Leaf, Again]


def test_functools_caches_are_looked_into() -> None:
    @functools.lru_cache
    def table(n: int) -> torch.Tensor:
        return torch.ones(n)

    assert paths(table) == []
    table(3)
    assert paths(table) == ["x.cache[...]"]


def test_loggers_and_traced_graphs_are_not_looked_into() -> None:
    logger = logging.getLogger("wherry.tests.walk")
    logger.kept = torch.ones(1)  # type: ignore[attr-defined]
    graph = torch.fx.symbolic_trace(nn.Linear(1, 1)).graph
    next(iter(graph.nodes)).meta["example_value"] = torch.ones(1)

    assert paths([logger, graph]) == []


def test_the_same_in_objects_of_others_is_found() -> None:
    """The twin."""

    class Other:
        def __init__(self) -> None:
            self.kept = torch.ones(1)

    assert paths([Other()]) == ["x[0].kept"]


@pytest.mark.filterwarnings("ignore")
def test_wrappers_of_torch_own_only_what_they_register() -> None:
    model = torch.compile(nn.Linear(1, 1, bias=False), backend="eager")

    assert paths(model) == ["x._orig_mod.weight"]


def test_a_leaf_knows_everything_on_the_way() -> None:
    batch = {"a": [torch.ones(1)]}
    (leaf,) = walk([("batch", batch)])
    assert isinstance(leaf, Leaf)

    found = leaf.found()

    assert found.text == "batch['a'][0]"
    assert found.owners == (batch, batch["a"])
    assert [step.key for step in found.steps] == ["a", 0]


ODD: dict[str, Any] = {
    "a module": functools,
    "a lock": threading.Lock(),
    "a local": threading.local(),
    "a generator": (x for x in ()),
    "a pattern": re.compile("x"),
    "a weak reference": weakref.ref(nn.Linear(1, 1)),
    "a weak dictionary": weakref.WeakKeyDictionary(),
    "a view of a dictionary": {}.items(),
    "a mapping proxy": types.MappingProxyType({}),
    "a memory": memoryview(b"x"),
    "a file": io.StringIO(),
    "a class": nn.Linear,
    "an exception": ValueError("x"),
    "a traceless function": len,
    "a number of numpy": np.float32(1),
    "an array of objects": np.array([None, "x"], dtype=object),
    "a record array": np.zeros(2, dtype=[("a", "i4")]),
    "a storage": torch.ones(1).untyped_storage(),
    "a generator of numbers": torch.Generator(),
    "a size": torch.ones(1).shape,
    "a module without its init": nn.Linear.__new__(nn.Linear),
    "an optimizer without its init": torch.optim.SGD.__new__(torch.optim.SGD),
    "a slotted dataclass": dataclasses.make_dataclass("D", ["a"], slots=True).__new__(
        dataclasses.make_dataclass("D", ["a"], slots=True)
    ),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_objects_do_not_matter(odd: Any) -> None:
    model = nn.Linear(1, 1)
    vars(model)["odd"] = odd

    assert "batch['x']" in [entry.path for entry in where({"odd": odd, "x": torch.ones(1)}, name="batch")]
    assert where(model).entries[0].path == "model.weight"
    where(odd)
    left_behind(model)
