"""A training that is moved goes on as if it had stayed: modules, optimizers, schedulers, scalers, averages, or nothing at all."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn.utils import parametrizations
from torch.optim import lr_scheduler, swa_utils

import wherry
from wherry import UnmovableLeaf, move
from wherry.rehearse import Rehearsal
from wherry.units import MIB


@pytest.fixture
def small() -> Iterator[Rehearsal]:
    """A device on which one MiB fits."""
    with wherry.rehearse("cuda", memory=1 * MIB) as rehearsal:
        gc.collect()
        yield rehearsal


def places(*tensors: Tensor) -> set[str]:
    return {str(tensor.device) for tensor in tensors}


def everything(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False))


def train(model: nn.Module, optimizer: optim.Optimizer, steps: range, device: str = "cpu") -> None:
    for step in steps:
        x = (torch.arange(24.0).view(8, 3).sin() + step).to(device)

        def closure(x: Tensor = x) -> Tensor:
            optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)


def tensors_of(state: Any) -> list[Tensor]:
    """The tensors in an optimizer's state, but for the counters of steps."""
    return [
        tensor
        for entries in state.values()
        for name, value in entries.items()
        if name != "step"
        for tensor in (value if isinstance(value, list) else [value])
        if isinstance(tensor, Tensor)
    ]


OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "Adam with amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1),
    "AdamW in a loop": lambda p: optim.AdamW(p, lr=0.1, foreach=False),
    "Adam, fused": lambda p: optim.Adam(p, lr=0.1, fused=True),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: optim.RAdam(p, lr=0.1),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5),
    "Rprop": lambda p: optim.Rprop(p, lr=0.1),
    "ASGD": lambda p: optim.ASGD(p, lr=0.1),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
    "LBFGS": lambda p: optim.LBFGS(p, lr=0.1, max_iter=3),
    "groups": lambda p: optim.AdamW([{"params": [each], "lr": 0.1 / (i + 1)} for i, each in enumerate(p)]),
}
ALL = pytest.mark.parametrize("name", OPTIMIZERS)


# Optimizers


@pytest.mark.slow
@ALL
def test_a_training_goes_on_as_if_it_had_stayed(name: str, cuda: str) -> None:
    stayed, moved = network(), network()
    its_optimizer, optimizer = OPTIMIZERS[name](stayed.parameters()), OPTIMIZERS[name](moved.parameters())
    train(stayed, its_optimizer, range(6))

    train(moved, optimizer, range(3))
    state = move({"model": moved, "optimizer": optimizer}, cuda)
    train(state["model"], state["optimizer"], range(3, 6), cuda)

    for here, there in zip(everything(stayed), everything(moved), strict=True):
        assert str(there.device) == cuda
        torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@ALL
def test_a_training_goes_on_after_it_came_back(name: str, cuda: str) -> None:
    stayed, moved = network(), network()
    its_optimizer, optimizer = OPTIMIZERS[name](stayed.parameters()), OPTIMIZERS[name](moved.parameters())
    train(stayed, its_optimizer, range(4))

    train(moved, optimizer, range(2))
    move([optimizer, moved], cuda)  # the optimizer first: the order in the structure is no matter
    move([optimizer, moved], "cpu")
    train(moved, optimizer, range(2, 4))

    for here, there in zip(everything(stayed), everything(moved), strict=True):
        torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)


@ALL
def test_an_optimizer_stays_the_same_object_with_the_same_parameters(name: str, cuda: str) -> None:
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, range(2))
    groups, state, parameters = optimizer.param_groups, optimizer.state, list(model.parameters())
    identities = [[id(each) for each in group["params"]] for group in groups]

    moved = move({"optimizer": optimizer, "model": model}, cuda)

    assert moved["optimizer"] is optimizer
    assert optimizer.param_groups is groups
    assert optimizer.state is state
    assert [[id(each) for each in group["params"]] for group in groups] == identities
    assert all(now is before for now, before in zip(model.parameters(), parameters, strict=True))
    assert places(*tensors_of(state)) <= {cuda}


def test_the_state_follows_a_model_that_was_moved_before(cuda: str) -> None:
    """What `optimizer.to` is asked for: a checkpoint was loaded, the model moved, the optimizer's state was left behind."""
    model = network()
    optimizer = optim.AdamW(model.parameters())
    train(model, optimizer, range(2))
    model.to(cuda)

    moved = move(optimizer, cuda)
    train(model, optimizer, range(2, 4), cuda)

    assert moved is optimizer
    assert places(*tensors_of(optimizer.state)) == {cuda}


# Of Adam's family: where its counter of steps belongs after the move.
COUNTERS: dict[str, tuple[Callable[[Any], optim.Optimizer], str]] = {
    "Adam": (optim.Adam, "cpu"),
    "AdamW with foreach": (lambda p: optim.AdamW(p, foreach=True), "cpu"),
    "RAdam": (optim.RAdam, "cpu"),
    "Adam, fused": (lambda p: optim.Adam(p, fused=True), "cuda:1"),
    "AdamW, capturable": (lambda p: optim.AdamW(p, capturable=True), "cuda:1"),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_the_counter_of_steps_is_where_its_optimizer_reads_it(name: str, cuda: str) -> None:
    make, where = COUNTERS[name]
    model = network().to(cuda)
    optimizer = make(model.parameters())
    train(model, optimizer, range(2), cuda)

    move([model, optimizer], "cuda:1")
    train(model, optimizer, range(2, 3), "cuda:1")

    counters = [entries["step"] for entries in optimizer.state.values()]
    assert places(*counters) == {where}
    assert [counter.item() for counter in counters] == [3.0] * len(counters)
    assert places(*tensors_of(optimizer.state)) == {"cuda:1"}


def test_a_counter_joins_a_fused_optimizer_on_its_device(cuda: str) -> None:
    model = network()
    optimizer = optim.Adam(model.parameters(), fused=True)
    train(model, optimizer, range(2))

    move([model, optimizer], cuda)

    assert places(*(entries["step"] for entries in optimizer.state.values())) == {cuda}


def test_the_dtype_of_a_model_is_not_that_of_its_counters(cuda: str) -> None:
    """A counter in bfloat16 stops at 256."""
    model = network()
    optimizer = optim.AdamW(model.parameters())
    train(model, optimizer, range(1))

    move({"model": model, "optimizer": optimizer}, cuda, dtype=torch.bfloat16)

    assert {entries["step"].dtype for entries in optimizer.state.values()} == {torch.float32}
    assert {each.dtype for each in tensors_of(optimizer.state)} == {torch.bfloat16}
    assert model[0].weight.dtype == torch.bfloat16


def test_an_optimizer_without_state_moves(cuda: str) -> None:
    model = network()
    optimizer = optim.AdamW(model.parameters())

    move([model, optimizer], cuda)
    train(model, optimizer, range(2), cuda)

    assert places(*tensors_of(optimizer.state)) == {cuda}


def test_an_optimizer_that_is_there_is_left_alone(untouched: Any) -> None:
    model = network()
    optimizer = optim.AdamW(model.parameters())
    train(model, optimizer, range(2))
    is_untouched = untouched(dict(optimizer.state))

    assert move({"model": model, "optimizer": optimizer}, "cpu")["optimizer"] is optimizer
    assert is_untouched()


def test_gradients_move_with_their_parameters(cuda: str) -> None:
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()

    move(model, cuda)

    assert places(model.weight.grad, model.bias.grad) == {cuda}


def test_on_meta_the_optimizer_still_has_the_model_s_parameters() -> None:
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    move({"model": model, "optimizer": optimizer}, "meta")

    held = [id(each) for group in optimizer.param_groups for each in group["params"]]
    assert held == [id(each) for each in model.parameters()]
    assert places(*model.parameters()) == {"meta"}


# Schedulers, scalers, averages


SCHEDULERS: dict[str, Callable[[optim.Optimizer], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=2),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1)),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=10),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.ExponentialLR(o, gamma=0.5)], milestones=[2]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_goes_on_with_its_optimizer(name: str, cuda: str) -> None:
    stayed = scheduled(name)
    moved = scheduled(name)
    go(*stayed, 6, "cpu")

    go(*moved, 3, "cpu")
    result = move(moved, cuda)
    go(*moved, 3, cuda)

    model, optimizer, scheduler = result
    assert (model, optimizer, scheduler) == moved
    assert scheduler.optimizer is optimizer
    assert optimizer.param_groups[0]["lr"] == pytest.approx(stayed[1].param_groups[0]["lr"])
    torch.testing.assert_close(model[0].weight.cpu(), stayed[0][0].weight, rtol=1e-4, atol=1e-5)


def scheduled(name: str) -> tuple[nn.Module, optim.Optimizer, Any]:
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, SCHEDULERS[name](optimizer)


def go(model: nn.Module, optimizer: optim.Optimizer, scheduler: Any, steps: int, device: str) -> None:
    for _ in range(steps):
        train(model, optimizer, range(1), device)
        scheduler.step()


def test_a_scheduler_alone_takes_its_optimizer_along(cuda: str) -> None:
    model, optimizer, scheduler = scheduled("StepLR")
    train(model, optimizer, range(1))
    model.to(cuda)

    assert move(scheduler, cuda) is scheduler
    assert places(*tensors_of(optimizer.state)) == {cuda}


def test_a_scaler_stays_the_same_object_and_goes_on(cuda: str) -> None:
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    scaler.scale(torch.ones((), device=cuda))

    moved = move({"scaler": scaler}, "cuda:1")

    assert moved["scaler"] is scaler
    assert scaler.get_scale() == 8.0
    assert str(scaler._scale.device) == "cuda:1"
    assert scaler.scale(torch.ones((), device="cuda:1")).item() == 8.0


def test_a_scaler_that_was_not_used_stays_the_same_object(cuda: str) -> None:
    scaler = torch.amp.GradScaler("cuda")

    assert move([scaler], cuda)[0] is scaler


def test_an_average_of_a_model_goes_on(cuda: str) -> None:
    model = network()
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5))
    average.update_parameters(model)

    moved = move({"model": model, "ema": average}, cuda)
    moved["ema"].update_parameters(moved["model"])

    assert moved["ema"] is average
    assert places(*everything(average)) == {cuda}
    assert average.n_averaged == 2


@dataclass
class State:
    """A training as people hold one."""

    model: nn.Module
    ema: nn.Module
    optimizer: optim.Optimizer
    scheduler: Any
    scaler: Any
    best: dict[str, Tensor]
    step: int = 0


def test_a_whole_training_moves_at_once(cuda: str) -> None:
    model, optimizer, scheduler = scheduled("StepLR")
    train(model, optimizer, range(1))
    best = {name: value.detach().clone() for name, value in model.state_dict().items()}
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    state = State(model, copy.deepcopy(model), optimizer, scheduler, scaler, best, step=3)

    moved = move(state, cuda)
    train(moved.model, moved.optimizer, range(1, 2), cuda)

    assert type(moved) is State
    assert moved.model is model
    assert moved.ema is state.ema
    assert moved.scaler is scaler
    assert moved.step == 3
    assert list(moved.best) == list(best)
    assert places(*everything(moved.model), *everything(moved.ema), *moved.best.values()) == {cuda}
    assert places(*best.values()) == {"cpu"}


def test_a_state_dict_moves_as_what_it_is(cuda: str) -> None:
    model, optimizer, scheduler = scheduled("StepLR")
    train(model, optimizer, range(1))
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}

    moved = move(checkpoint, cuda)

    assert type(moved["model"]) is type(checkpoint["model"])
    assert moved["model"]._metadata == checkpoint["model"]._metadata
    assert places(*moved["model"].values(), *tensors_of(moved["optimizer"]["state"])) == {cuda}
    network().to(cuda).load_state_dict(moved["model"])


# Modules


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.decoder.weight = self.encoder.weight
        self.register_buffer("mask", torch.ones(3))
        self.child = nn.Module()
        self.child.register_buffer("mask", self.mask, persistent=False)


def test_tied_parameters_and_buffers_stay_tied(cuda: str) -> None:
    model = Tied()

    move({"model": model}, cuda)

    assert model.decoder.weight is model.encoder.weight
    assert model.child.mask is model.mask
    assert places(*everything(model)) == {cuda}


def test_a_parameter_of_two_modules_stays_one(cuda: str) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight

    move({"generator": first, "discriminator": second}, cuda)

    assert second.weight is first.weight
    assert places(*everything(first), *everything(second)) == {cuda}


def test_a_tensor_beside_a_module_is_still_its_parameter(cuda: str) -> None:
    """As in lists of weights to decay, and in hooks that were given a parameter."""
    model = nn.Linear(2, 2)

    moved = move({"model": model, "decay": [model.weight]}, cuda)

    assert moved["decay"][0] is model.weight


def test_parameters_that_were_cut_from_one_buffer_still_are(cuda: str) -> None:
    model = nn.ParameterList(each.detach() for each in torch.arange(6.0).chunk(2))

    move(model, cuda)

    assert model[0].untyped_storage()._cdata == model[1].untyped_storage()._cdata
    assert model[1].tolist() == [3.0, 4.0, 5.0]


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LSTM": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), (5, 2, 3)),
    "GRU": (lambda: nn.GRU(3, 4), (5, 2, 3)),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(3, 3)), (2, 3)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(3, 3)), (2, 3)),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(3, 3)), (2, 3)),
    "transformer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (2, 3, 4)),
    "batch norm": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)),
    "frozen": (lambda: nn.Linear(3, 3).requires_grad_(False), (2, 3)),
    "double": (lambda: nn.Sequential(nn.Linear(3, 3), nn.Flatten()), (2, 3)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_computes_on_the_device_what_it_computed(name: str, cuda: str) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    model = make().eval()
    x = torch.rand(shape)
    before = first(model(x))
    parameters = [id(each) for each in model.parameters()]

    moved = move(model, cuda)
    after = first(moved(x.to(cuda)))

    assert moved is model
    assert not moved.training
    assert places(*everything(model), after) == {cuda}
    assert [id(each) for each in model.parameters()] == parameters
    torch.testing.assert_close(after.cpu(), before)


def first(output: Any) -> Tensor:
    return (output[0] if isinstance(output, tuple) else output).detach()


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_the_older_weight_norm_moves(cuda: str) -> None:
    model = nn.utils.weight_norm(nn.Linear(3, 3))
    model(torch.ones(1, 3))

    move(model, cuda, strays="ignore")  # its last weight is a plain attribute, which the next forward makes anew

    assert str(model(torch.ones(1, 3, device=cuda)).device) == cuda


def test_flat_weights_of_an_lstm_are_its_parameters(cuda: str) -> None:
    model = nn.LSTM(3, 4)

    move([model], cuda)

    assert all(flat is parameter for flat, parameter in zip(model._flat_weights, model.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_lazy_module_is_made_on_the_device(cuda: str) -> None:
    model = nn.Sequential(nn.LazyLinear(2), nn.ReLU())

    move({"model": model}, cuda)
    model(torch.ones(1, 3, device=cuda))

    assert model[0].weight.shape == (2, 3)
    assert places(*model.parameters()) == {cuda}


class MovesMore(nn.Module):
    """Moves a plain attribute in `_apply`, as its users were told to."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.table = nn.Parameter(torch.ones(2)), torch.ones(3)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MovesMore:
        super()._apply(fn, recurse)
        self.table = fn(self.table)
        return self


class MovesMoreInTo(MovesMore):
    """Moves it in `.to`."""

    _apply = nn.Module._apply

    def to(self, *args: Any, **kwargs: Any) -> MovesMoreInTo:
        super().to(*args, **kwargs)
        self.table = self.table.to(*args, **kwargs)
        return self


@pytest.mark.parametrize("kind", [MovesMore, MovesMoreInTo])
def test_a_module_that_moves_more_of_itself_may(kind: type[MovesMore], cuda: str) -> None:
    model = kind()

    moved = move({"model": model}, cuda)  # and nothing is told of strays: there are none any more

    assert moved["model"] is model
    assert places(model.weight, model.table) == {cuda}


@pytest.mark.parametrize("kind", [MovesMore, MovesMoreInTo])
def test_a_submodule_that_moves_more_of_itself_may(kind: type[MovesMore], cuda: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), kind())

    move(model, cuda, strays="move")

    assert places(*model.parameters(), model[1].table) == {cuda}


def test_a_module_that_is_there_is_left_alone() -> None:
    model = network()
    before = [(id(each), each.data_ptr()) for each in everything(model)]

    assert move(model, "cpu") is model
    assert [(id(each), each.data_ptr()) for each in everything(model)] == before


# Nothing is half-moved


class Refusing:
    def to(self, *_: object, **__: object) -> None:
        raise ValueError("not today")


class RefusingModule(nn.Linear):
    def to(self, *_: object, **__: object) -> RefusingModule:
        raise ValueError("not today")


BREAKERS: dict[str, Callable[[], Any]] = {
    "object": Refusing,
    "module": lambda: RefusingModule(1, 1),
    "list of objects": lambda: [torch.ones(2), Refusing()],
}


@pytest.mark.parametrize("name", BREAKERS)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_training_stays_whole_when_something_beside_it_fails(
    name: str,
    first: bool,
    cuda: str,
    untouched: Any,
) -> None:
    stayed, model = network(), network()
    its_optimizer, optimizer = optim.AdamW(stayed.parameters()), optim.AdamW(model.parameters())
    train(stayed, its_optimizer, range(4))
    train(model, optimizer, range(2))
    is_untouched = untouched([list(model.parameters()), dict(optimizer.state)])
    training, breaker = {"model": model, "optimizer": optimizer}, BREAKERS[name]()

    with pytest.raises(UnmovableLeaf) as failed:
        move([breaker, training] if first else [training, breaker], cuda)

    assert isinstance(failed.value.__cause__, ValueError)
    assert is_untouched()
    train(model, optimizer, range(2, 4))
    assert torch.equal(model[0].weight, stayed[0].weight)


def test_a_full_device_leaves_everything_on_the_host(small: Rehearsal, untouched: Any) -> None:
    model = network()
    optimizer = optim.AdamW(model.parameters())
    train(model, optimizer, range(2))
    batch = {"x": torch.ones(4), "big": [torch.ones(MIB // 2)]}
    is_untouched = untouched([list(model.parameters()), dict(optimizer.state), batch["x"]])

    with pytest.raises(UnmovableLeaf) as failed:
        move({"model": model, "optimizer": optimizer, "batch": batch}, small.device)

    assert failed.value.path.endswith("['batch']['big'][0]")
    assert isinstance(failed.value.__cause__, torch.OutOfMemoryError)
    assert is_untouched()
    assert places(*batch["big"]) == {"cpu"}
    train(model, optimizer, range(2, 3))


@pytest.mark.alone
def test_a_full_device_is_as_empty_as_before(small: Rehearsal) -> None:
    gc.collect()
    before = torch.cuda.memory_allocated()

    with pytest.raises(UnmovableLeaf):
        move([torch.ones(1000), nn.Linear(10, 10), torch.ones(MIB // 2)], small.device)
    gc.collect()

    assert torch.cuda.memory_allocated() == before


def test_a_model_that_does_not_fit_stays_where_it_was(small: Rehearsal) -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(1000, 1000), nn.Linear(10, 10))

    with pytest.raises(UnmovableLeaf) as failed:
        move({"model": model}, small.device)

    assert "weight" in failed.value.path
    assert "1" in failed.value.path
    assert "model" in failed.value.path
    assert places(*model.parameters()) == {"cpu"}


def test_a_full_device_can_be_tried_again(small: Rehearsal) -> None:
    model = nn.Linear(10, 10)
    with pytest.raises(UnmovableLeaf):
        move([model, torch.ones(MIB // 2)], small.device)

    move(model, small.device)

    assert places(*model.parameters()) == {small.device}


def test_a_structure_of_modules_is_the_same_object_after_they_moved(cuda: str) -> None:
    """A container of modules alone holds the same objects before and after."""
    models = {"a": nn.Linear(2, 2), "more": SimpleNamespace(b=nn.Linear(2, 2))}

    moved = move(models, cuda)

    assert moved["a"] is models["a"]
    assert moved["more"].b is models["more"].b
    assert places(*moved["a"].parameters(), *moved["more"].b.parameters()) == {cuda}
