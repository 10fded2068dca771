"""Paths begin with what the caller wrote."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import wherry
from wherry import UnmovableLeaf, move

BAD = torch.ones(2, device="meta")  # it has no values that could go to the host


def test_a_variable_an_attribute_and_an_item_are_called_by_their_names() -> None:
    batch = [BAD]
    state = SimpleNamespace(batch=batch)
    found = []

    for call in (
        lambda: move(batch, "cpu"),
        lambda: wherry.move(state.batch, "cpu"),
        lambda: move(state.batch[0], "cpu"),
        lambda: move(obj=batch, device="cpu"),
    ):
        with pytest.raises(UnmovableLeaf) as failed:
            call()
        found.append(failed.value.path)

    assert found == ["batch[0]", "state.batch[0]", "state.batch[0]", "batch[0]"]


def test_a_call_over_several_lines_is_read_whole() -> None:
    batch = {"x": BAD}

    with pytest.raises(UnmovableLeaf) as failed:
        _ = [
            move(
                batch,
                "cpu",
                skip=("labels",),
            )
        ]

    assert failed.value.path == "batch['x']"


def test_what_has_no_name_is_called_obj() -> None:
    with pytest.raises(UnmovableLeaf) as literal:
        move([BAD], "cpu")
    with pytest.raises(UnmovableLeaf) as two:
        _ = move(torch.ones(2), "meta"), move(BAD, "cpu")
    with pytest.raises(UnmovableLeaf) as no_source:
        exec("move([BAD], 'cpu')", {"move": move, "BAD": BAD})

    assert [literal.value.path, two.value.path, no_source.value.path] == ["obj[0]", "obj", "obj[0]"]
