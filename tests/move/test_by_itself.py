"""Objects with a `.to` of their own: what it does is done to a twin, and what it does not know of is seen to."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from wherry import UnmovableLeaf, move, rehearse


class Pair:
    """Moves both, one by one, so that what was one tensor would be two."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def to(self, device: Any) -> Any:
        return type(self)(self.first.to(device), self.second.to(device))


class Lengths(Pair):
    """Leaves the second on the host, on purpose."""

    def to(self, device: Any) -> Any:
        return type(self)(self.first.to(device), self.second)


class Assigns(Pair):
    def to(self, device: Any) -> None:
        self.first.data = self.first.data.to(device)
        self.second = self.second.to(device)


class Agent:
    def __init__(self) -> None:
        self.net = nn.Linear(2, 2)

    def to(self, device: Any) -> Agent:
        self.net.to(device)
        return self


class Refusing:
    def to(self, device: Any) -> None:
        raise ValueError("not today")


def place(tensor: Tensor) -> str:
    return str(tensor.device)


def test_one_tensor_stays_one_in_it_and_beside_it(cuda: str) -> None:
    x = torch.ones(2)

    moved = move({"pair": Pair(x, x), "x": x}, cuda)

    assert moved["pair"].first is moved["pair"].second
    assert moved["pair"].first is moved["x"]


def test_what_it_leaves_on_the_host_stays_there(cuda: str) -> None:
    lengths = torch.tensor([2, 1])

    moved = move([Lengths(torch.ones(2), lengths)], cuda)[0]

    assert (place(moved.first), place(moved.second)) == (cuda, "cpu")


def test_what_it_does_to_a_tensor_is_not_done_to_mine(cuda: str) -> None:
    mine = Assigns(torch.ones(2), torch.ones(2))
    first = mine.first

    moved = move(mine, cuda)

    assert (place(moved.first), place(moved.second)) == (cuda, cuda)
    assert mine.first is first
    assert (place(mine.first), place(mine.second)) == ("cpu", "cpu")


def test_a_copy_shares_no_memory_with_what_others_in_it_hold() -> None:
    inner = Pair(torch.zeros(2), torch.zeros(2))
    outer = Pair(inner, torch.zeros(2))

    copied = move(outer, "cpu", copy=True)
    copied.first.first += 1
    copied.second += 1

    assert (inner.first.tolist(), outer.second.tolist()) == ([0, 0], [0, 0])


def test_dtypes_are_seen_to_although_it_takes_none() -> None:
    pair = Pair(torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int32))

    with rehearse("mps"):
        with pytest.warns(UserWarning, match=r"pair\.first became float32"):
            moved = move(pair, "mps")
        with pytest.raises(UnmovableLeaf, match=r"pair\.first cannot move"):
            move(pair, "mps", float64="error")

    assert (moved.first.dtype, moved.second.dtype) == (torch.float32, torch.int32)
    assert move(pair, "cpu", dtype=torch.float16).first.dtype is torch.float16


def test_what_is_skipped_in_it_is_what_it_was(cuda: str) -> None:
    pair = Pair(torch.ones(2), torch.ones(2))

    moved = move([pair], cuda, skip="second")[0]

    assert place(moved.first) == cuda
    assert moved.second is pair.second


def test_a_module_in_it_goes_back_when_something_else_fails(cuda: str) -> None:
    agent = Agent()

    with pytest.raises(UnmovableLeaf):
        move([agent, Refusing()], cuda)

    assert place(agent.net.weight) == "cpu"


def test_a_module_in_it_moves_in_place_and_a_copy_has_its_own(cuda: str) -> None:
    agent = Agent()

    copied = move(agent, cuda, copy=True)
    assert (place(copied.net.weight), place(agent.net.weight)) == (cuda, "cpu")

    moved = move(agent, cuda)
    assert moved.net is agent.net
    assert place(agent.net.weight) == cuda
    assert move(agent, cuda) is agent


def test_a_class_that_was_made_by_a_call_is_moved_as_a_twin(cuda: str) -> None:
    made = ABCMeta("Made", (Assigns,), {})(torch.ones(2), torch.ones(2))  # its __module__ is "abc"

    moved = move(made, cuda)

    assert type(moved) is type(made)
    assert (place(moved.first), place(made.first)) == (cuda, "cpu")


class ByName:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, *, device: Any) -> ByName:
        return ByName(self.x.to(device))


class OfItsOwnSort:
    """A quantity, whose `to` takes a unit."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, unit: str) -> OfItsOwnSort:
        raise AssertionError(f"there is no unit {unit}")


def test_the_device_is_handed_over_as_it_is_taken(cuda: str) -> None:
    assert place(move(ByName(torch.ones(2)), cuda).x) == cuda
    assert str(move(torch.ones(2).untyped_storage(), cuda).device) == cuda


def test_a_to_that_takes_no_device_is_not_called(cuda: str) -> None:
    assert place(move(OfItsOwnSort(torch.ones(2)), cuda).x) == cuda


class Sorted:
    """Its `to` goes through its parts in another order, and adds one."""

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)

    def to(self, device: Any) -> Sorted:
        moved = {name: part.to(device) for name, part in sorted(vars(self).items())}
        return Sorted(where=device, **moved)


def test_parts_are_told_apart_by_name_and_not_by_order(cuda: str) -> None:
    shared = torch.zeros(2)

    moved = move({"w": shared, "it": Sorted(y=shared, x=torch.ones(2))}, cuda)

    assert moved["it"].x.tolist() == [1, 1]
    assert moved["it"].y is moved["w"]


def test_what_is_skipped_is_told_by_name_too(cuda: str) -> None:
    mine = Sorted(y=torch.zeros(2), x=torch.ones(2))

    moved = move(mine, cuda, skip="y")

    assert moved.y is mine.y
    assert (place(moved.x), moved.x.tolist()) == (cuda, [1, 1])


class Doubles(Pair):
    def to(self, device: Any) -> Any:
        return type(self)((self.first * 2).to(device), self.second.half().to(device))


def test_what_its_to_computes_is_kept(cuda: str) -> None:
    x = torch.ones(2)

    moved = move([x, Doubles(x, x)], cuda)[1]

    assert moved.first.tolist() == [2, 2]
    assert moved.second.dtype is torch.float16


class Trainer:
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.model = nn.Linear(2, 2, dtype=dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0, momentum=0.9)

    def to(self, device: Any) -> Trainer:
        self.model.to(device)
        return self

    def step(self) -> None:
        device, dtype = self.model.weight.device, self.model.weight.dtype
        self.model(torch.ones(1, 2, device=device, dtype=dtype)).sum().backward()
        self.optimizer.step()


def test_a_copied_trainer_trains_its_own_model(cuda: str) -> None:
    mine = Trainer()
    mine.step()
    before = mine.model.weight.detach().clone()

    copied = move([mine, mine.model], cuda, copy=True)
    copied[0].step()

    assert copied[0].model is copied[1]
    assert not copied[0].model.weight.detach().cpu().equal(before)
    assert mine.model.weight.equal(before)


def test_what_hangs_in_it_moves_as_it_would_beside_it(cuda: str) -> None:
    trainer = Trainer()
    trainer.step()

    moved = move(trainer, cuda, dtype=torch.float16)

    assert trainer.model.weight.dtype is torch.float16
    assert place(trainer.optimizer.state[trainer.model.weight]["momentum_buffer"]) == cuda
    moved.step()


def test_a_float64_module_in_it_is_narrowed_on_the_way() -> None:
    with rehearse("mps"):
        with pytest.warns(UserWarning, match=r"became float32"):
            trainer = move(Trainer(torch.float64), "mps")

        assert trainer.model.weight.dtype is torch.float32


def test_all_of_it_goes_back_when_something_else_fails(cuda: str) -> None:
    trainer = Trainer()
    trainer.step()

    with pytest.raises(UnmovableLeaf):
        move([trainer, Refusing()], cuda)

    state = trainer.optimizer.state[trainer.model.weight]
    assert (place(trainer.model.weight), place(state["momentum_buffer"])) == ("cpu", "cpu")
