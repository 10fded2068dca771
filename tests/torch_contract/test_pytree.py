"""What torch's pytree knows of the classes that somebody registered."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch.utils import _pytree

from wherry.dispatch import mapped, pytree_nodes


class Pair:
    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


def test_a_registered_class_is_taken_apart_and_put_together_by_its_functions() -> None:
    assert Pair not in pytree_nodes()
    _pytree.register_pytree_node(
        Pair, lambda pair: ([pair.first, pair.second], "context"), lambda parts, _: Pair(*parts)
    )

    node = pytree_nodes()[Pair]
    parts, context = node.flatten_fn(Pair(1, 2))

    assert (list(parts), context) == ([1, 2], "context")
    assert node.unflatten_fn([3, 4], context).second == 4


def test_it_knows_builtin_containers_and_what_torch_returns() -> None:
    assert {list, tuple, dict, OrderedDict, torch.return_types.max} <= pytree_nodes().keys()


def test_leaves_are_mapped_where_they_are() -> None:
    assert mapped(lambda leaf: leaf * 2, {"a": [1, (2,)]}) == {"a": [2, (4,)]}
