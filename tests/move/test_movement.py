"""What a movement must not leave behind in the process, and what it looks up anew each time."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from wherry import UnmovableLeaf, move, rehearse
from wherry.move import in_flight


def parametrized() -> nn.Module:
    """Its class is made for it alone, and keeps it alive."""
    return nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))


@pytest.mark.parametrize("build", [parametrized, lambda: nn.LSTM(2, 2), lambda: torch.ones(2)])
def test_nothing_that_was_moved_is_kept(build: Any, cuda: str) -> None:
    here = build()
    moved = move([here], cuda)[0]
    known = weakref.ref(here), weakref.ref(moved)

    del here, moved
    gc.collect()

    assert [ref() for ref in known] == [None, None]


def test_what_failed_to_move_is_not_kept(cuda: str) -> None:
    class Refusing:
        def to(self, device: object) -> None:
            raise ValueError("no")

    tensor = torch.ones(2)
    known = weakref.ref(tensor)
    with pytest.raises(UnmovableLeaf):
        move([tensor, Refusing()], cuda)

    del tensor
    gc.collect()

    assert known() is None


class Box:
    def __init__(self, held: Tensor) -> None:
        self.held = held


def test_a_class_that_is_registered_later_is_taken_apart_by_its_functions_from_then_on() -> None:
    made: list[object] = []
    assert move(Box(torch.ones(2)), "meta").held.is_meta

    _pytree.register_pytree_node(
        Box, lambda box: ([box.held], None), lambda parts, _: made.append(parts) or Box(*parts)
    )
    moved = move([Box(torch.ones(2))], "meta")

    assert moved[0].held.is_meta
    assert len(made) == 1


def test_a_pinned_source_lives_until_its_copy_is_done() -> None:
    with rehearse("cuda"):
        source = torch.ones(2).pin_memory()
        known = weakref.ref(source)
        move([source], "cuda")
        del source

        assert known() is not None
        torch.cuda.synchronize()
        move([torch.ones(2).pin_memory()], "cuda")  # looks whether earlier ones are done

        assert known() is None
    in_flight._waiting.clear()


def test_a_pageable_source_need_not_live() -> None:
    """The twin: the test above would notice."""
    with rehearse("cuda"):
        source = torch.ones(2)
        known = weakref.ref(source)
        move([source], "cuda")
        del source

        assert known() is None


def test_a_copy_to_the_host_is_never_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    with rehearse("cuda"):
        there = [torch.ones(2, device="cuda"), torch.ones(4, device="cuda")[::2]]
        asked: list[bool] = []
        to = Tensor.to

        def watched(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            asked.append(bool(kwargs.get("non_blocking", False)))
            return to(self, *args, **kwargs)

        monkeypatch.setattr(Tensor, "to", watched)
        move(there, "cpu")
        move([torch.ones(2).pin_memory()], "cuda")
        monkeypatch.undo()

    assert asked == [False, False, True]  # the last one: what is asked is seen
