"""The seed of a CPU generator has 64 bits, of which its algorithm uses 32; the others come back as they were given."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode


@given(low=st.integers(0, 2**32 - 1), high=st.integers(0, 2**32 - 1))
def test_numbers_depend_on_the_low_half_of_the_seed_only(low: int, high: int) -> None:
    marked = torch.rand(4, generator=torch.Generator().manual_seed(high << 32 | low))

    assert torch.equal(marked, torch.rand(4, generator=torch.Generator().manual_seed(low)))


@given(seed=st.integers(0, 2**64 - 1))
def test_whole_seed_is_remembered(seed: int) -> None:
    assert torch.Generator().manual_seed(seed).initial_seed() == seed


def test_low_half_of_the_seed_does_matter() -> None:
    first, second = (torch.rand(4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))

    assert not torch.equal(first, second)


@given(seed=st.integers(0, 2**64 - 1))
def test_state_begins_with_the_seed(seed: int) -> None:
    state = torch.Generator().manual_seed(seed).get_state()

    assert int.from_bytes(state.numpy()[:8].tobytes(), "little") == seed


def test_mode_is_handed_a_new_object_for_a_generator_with_the_same_seed() -> None:
    seen: list[torch.Generator] = []

    class Watches(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((kwargs or {})["generator"])
            return func(*args, **(kwargs or {}))

    generator = torch.Generator().manual_seed(7)
    with Watches():
        torch.rand(2, generator=generator)

    assert seen[0].initial_seed() == 7


def test_manual_seed_reaches_the_default_generator() -> None:
    before = torch.get_rng_state()
    torch.manual_seed(11)

    assert torch.default_generator.initial_seed() == 11
    torch.set_rng_state(before)


def test_ops_that_draw_are_tagged() -> None:
    drawing = torch.Tag.nondeterministic_seeded

    assert drawing in torch.ops.aten.rand.default.tags
    assert drawing in torch.ops.aten.native_dropout.default.tags
    assert drawing not in torch.ops.aten.add.Tensor.tags


def test_generator_may_be_subclassed() -> None:
    class Mine(torch.Generator):
        pass

    mine = Mine("cpu").manual_seed(3)

    assert torch.equal(torch.rand(2, generator=mine), torch.rand(2, generator=torch.Generator().manual_seed(3)))
