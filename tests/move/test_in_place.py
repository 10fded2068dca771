"""Modules, optimizers and their kin: they stay the objects that they are, hold what they held, and go back when one fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from wherry import StrayTensors, UnmovableLeaf, move, rehearse


def place(tensor: Tensor) -> str:
    return str(tensor.device)


class Keeps(nn.Module):
    """Moves a tensor of its own in its `_apply`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.cache = torch.ones(2)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Keeps:
        super()._apply(fn, recurse)
        self.cache = fn(self.cache)
        return self


class Refuses(nn.Linear):
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Refuses:
        super()._apply(fn, recurse)
        raise ValueError("not today")


@pytest.mark.parametrize("make", [torch.optim.LBFGS, lambda p: torch.optim.SGD(p, momentum=0.9)])
def test_an_optimizer_alone_keeps_the_parameters_of_its_model(make: Any, cuda: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = make(model.parameters())
    before = model.weight.detach().clone()

    move(optimizer, cuda)
    move(model, cuda)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2, device=cuda)).sum() ** 2
        loss.backward()
        return loss

    optimizer.step(closure)
    assert optimizer.param_groups[0]["params"][0] is model.weight
    assert not model.weight.detach().cpu().equal(before)


def test_an_optimizer_s_parameters_beside_it_move_in_place(cuda: str) -> None:
    params = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    params[0].grad = torch.ones(2)
    optimizer = torch.optim.SGD(params)

    moved = move({"params": params, "optimizer": optimizer}, cuda)

    assert moved["params"][0] is params[0]
    assert optimizer.param_groups[0]["params"][0] is params[0]
    assert (place(params[0]), place(params[0].grad), place(params[1])) == (cuda, cuda, cuda)


def test_a_class_that_moves_more_of_itself_is_put_back_whole(cuda: str) -> None:
    keeps, sparse = Keeps(), nn.Module()
    sparse.weight = nn.Parameter(torch.eye(2).to_sparse())
    first = nn.Linear(2, 2)
    weight = first.weight.data_ptr()

    with pytest.raises(UnmovableLeaf, match=r"\[2\] cannot move to .*: ValueError: not today\. Nothing has moved"):
        move([first, keeps, Refuses(2, 2), sparse], cuda)

    assert {place(first.weight), place(keeps.cache), place(keeps.layer.weight), place(sparse.weight)} == {"cpu"}
    assert first.weight.data_ptr() == weight


def test_a_warning_that_is_an_error_is_raised_before_anything_moved(cuda: str) -> None:
    model = nn.Linear(2, 2)
    model.extra = torch.ones(2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"model\.extra"):
            move(model, cuda)

    assert place(model.weight) == "cpu"


def test_strays_of_what_is_copied_are_told_too(cuda: str) -> None:
    model = nn.Linear(2, 2)
    model.extra = torch.ones(2)

    with pytest.warns(UserWarning, match=r"model\.extra"):
        copied = move(model, cuda, copy=True)

    assert place(copied.weight) == cuda
    assert place(model.weight) == "cpu"


class OwnTo(nn.Linear):
    """As the models of transformers, whose `to` only looks."""

    def to(self, *args: Any, **kwargs: Any) -> OwnTo:
        return super().to(*args, **kwargs)


def test_strays_of_a_class_with_its_own_to_are_told_when_it_has_had_its_say(cuda: str) -> None:
    model = OwnTo(2, 2)
    model.extra = torch.ones(2)

    with pytest.warns(UserWarning, match=r"model\.extra"):
        move(model, cuda)

    assert place(model.weight) == cuda


class Table(nn.Linear):
    table = torch.ones(2)  # of the class


def test_what_nobody_can_move_is_told_without_the_advice_to_move_it(cuda: str) -> None:
    model = Table(2, 2)

    with pytest.warns(UserWarning, match=r"model\.table") as told:
        move(model, cuda, strays="move")
    with pytest.raises(StrayTensors):
        move(model, cuda, strays="error")

    assert 'strays="move"' not in str(told[0].message)


def test_an_lstm_on_meta_computes_with_its_parameters() -> None:
    lstm = move(nn.LSTM(2, 2, bidirectional=True), "meta")

    assert [id(weight) for weight in lstm._flat_weights] == [id(weight) for weight in lstm.parameters()]


class Marked(nn.Parameter):
    pass


@pytest.mark.parametrize("device", ["meta", "cuda"])
def test_lazy_and_derived_parameters_stay_what_they_are(device: str) -> None:
    with rehearse("cuda"):
        lazy, model = nn.LazyLinear(2), nn.Linear(2, 2)
        model.weight = Marked(torch.ones(2, 2))
        move([lazy, model], device)

        assert lazy.weight.device.type == device
        assert isinstance(lazy.weight, nn.UninitializedParameter)
        assert type(model.weight) is Marked


def test_what_is_skipped_in_a_state_stays(cuda: str) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

    move(optimizer, cuda, skip="exp_avg")

    state = optimizer.state[model.weight]
    assert (place(state["exp_avg"]), place(state["exp_avg_sq"])) == ("cpu", cuda)


def test_a_state_that_does_not_fit_is_named() -> None:
    with rehearse("cuda", memory="1MiB"):
        model = nn.Linear(1000, 1000)
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
        model(torch.ones(1, 1000)).sum().backward()
        optimizer.step()

        with pytest.raises(torch.OutOfMemoryError) as failed:
            move({"optimizer": optimizer}, "cuda")

    assert isinstance(failed.value, UnmovableLeaf)
    assert failed.value.path == "obj['optimizer'].state[p]['momentum_buffer']"
    assert str(failed.value).endswith("Free memory there, or move less at a time.")


@pytest.mark.parametrize("kind", ["adam", "scaler"])
def test_counters_and_scales_keep_their_dtype(kind: str, cuda: str) -> None:
    if kind == "scaler":
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(torch.ones(1, device=cuda))
        move(scaler, "cpu", dtype=torch.float16)

        assert (scaler._scale.dtype, place(scaler._scale), scaler._device) == (torch.float32, "cpu", "cpu")
        return
    param = nn.Parameter(torch.ones(2, device=cuda))
    optimizer = torch.optim.Adam([param], capturable=True, foreach=False)
    param.grad = torch.ones_like(param)
    optimizer.step()

    move([param, optimizer], cuda, dtype=torch.bfloat16)

    state = optimizer.state[param]
    assert (state["step"].dtype, state["exp_avg"].dtype, param.dtype) == (torch.float32, torch.bfloat16, torch.bfloat16)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_module_is_copied_to_where_it_should_be(cuda: str) -> None:
    scripted = torch.jit.script(nn.Linear(2, 2))

    copied = move(scripted, cuda, copy=True)

    assert {place(weight) for weight in copied.parameters()} == {cuda}
    assert all(weight.is_leaf and weight.requires_grad for weight in copied.parameters())
    assert {place(weight) for weight in scripted.parameters()} == {"cpu"}
    assert copied(torch.ones(1, 2, device=cuda)).tolist() == scripted(torch.ones(1, 2)).tolist()


def test_a_copied_optimizer_keeps_what_its_class_added(cuda: str) -> None:
    param = nn.Parameter(torch.ones(2))

    copied = move([param, torch.optim.LBFGS([param])], cuda, copy=True)

    assert copied[1]._params[0] is copied[1].param_groups[0]["params"][0]
    assert copied[1]._params[0] is not param


@pytest.mark.parametrize("device", ["cuda", "meta"])
@pytest.mark.parametrize("make", [nn.Parameter, lambda x: x.requires_grad_()])
def test_a_leaf_beside_its_optimizer_keeps_its_gradient(make: Any, device: str) -> None:
    with rehearse("cuda"):
        leaf = make(torch.ones(2))
        leaf.grad = torch.ones(2)
        optimizer = torch.optim.SGD([leaf])

        moved = move({"leaf": leaf, "optimizer": optimizer}, device)["leaf"]

        assert moved.grad is not None
        assert (moved.device.type, moved.grad.device.type) == (device, device)
        assert optimizer.param_groups[0]["params"][0] is moved


class Takes(nn.Linear):
    """Takes a buffer away, makes another one, and refuses."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("old", torch.ones(2))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Takes:
        super()._apply(fn, recurse)
        del self._buffers["old"]
        self.register_buffer("new", torch.ones(2))
        raise ValueError("not today")


def test_buffers_that_went_and_came_are_put_back(cuda: str) -> None:
    model, takes = nn.Linear(2, 2), Takes()

    with pytest.raises(UnmovableLeaf, match="not today"):
        move([model, takes], cuda)

    assert place(model.weight) == "cpu"
    assert list(takes._buffers) == ["old"]


class Notes(nn.Linear):
    where = "nowhere"

    def to(self, device: Any) -> Notes:
        self.where = str(device)
        return super().to(device)


def test_what_its_own_to_noted_is_forgotten_when_another_fails(cuda: str) -> None:
    notes = Notes(2, 2)
    with pytest.raises(UnmovableLeaf):
        move([notes, Refuses(2, 2)], cuda)
    assert notes.where == "nowhere"

    move(notes, cuda)
    assert notes.where == cuda
    assert "_apply" not in vars(notes)


class Listens(nn.Linear):
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Listens:
        return super()._apply(fn, recurse)


def test_strays_that_are_told_last_are_refused_with_everything_put_back(cuda: str) -> None:
    model = Listens(2, 2)
    model.extra = torch.ones(2)

    with pytest.raises(StrayTensors):
        move(model, cuda, strays="error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="extra"):
            move(model, cuda)

    assert place(model.weight) == "cpu"


def test_a_module_that_hangs_in_a_tensor_moves_with_it(cuda: str) -> None:
    tensor = torch.ones(2)
    tensor.head = nn.Linear(2, 2)

    moved = move(tensor, cuda)

    assert moved.head is tensor.head
    assert place(moved.head.weight) == cuda
