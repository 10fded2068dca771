"""What `Module.to` leaves behind, against `Module.to` itself, and the sentences that mend it."""

from __future__ import annotations

import functools
import gc
import sys
import warnings
import weakref
from collections import deque
from typing import Any

import pytest
import torch
from torch import nn

import wherry
from wherry import where
from wherry.where import Role
from wherry.where.strays import left_behind
from wherry.where.walk import Leaf, walk


class Scaler:
    def __init__(self) -> None:
        self.mean = torch.ones(3)


class Holder(nn.Module):
    """A module to hang things in."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.register_buffer("mask", torch.ones(3))
        for name, value in attributes.items():
            setattr(self, name, value)


class Tabled(Holder):
    TABLE = torch.ones(5)


class Shifted(Holder):
    def forward(self, x: torch.Tensor, shift: torch.Tensor = torch.ones(1)) -> torch.Tensor:  # noqa: B008 - the fault
        return x + shift


def captured() -> Any:
    bias = torch.ones(4)
    return lambda x: x + bias


def cached() -> Any:
    @functools.lru_cache
    def table(n: int) -> torch.Tensor:
        return torch.ones(n)

    table(3)
    return table


def hidden() -> Holder:
    made = Holder()
    object.__setattr__(made, "extra", nn.Linear(1, 1, bias=False))
    return made


def stepped() -> Holder:
    made = Holder()
    made.opt = torch.optim.Adam([made.lin.bias])
    made.lin(torch.ones(3)).sum().backward()
    made.opt.step()
    return made


def hooked() -> Holder:
    made = Holder()
    made.lin.register_forward_hook(captured())
    return made


def aliased() -> Holder:
    made = Holder()
    made.again = made.mask
    made.raw = made.lin.weight.data
    return made


INIT = "In Holder.__init__, write "
TABLE: dict[str, tuple[Any, dict[str, str]]] = {
    "plain attribute": (
        lambda: Holder(scale=torch.ones(3)),
        {"model.scale": INIT + "`self.register_buffer('scale', scale, persistent=False)`."},
    ),
    "tensors in a list": (
        lambda: Holder(_past=[torch.ones(3)]),
        {
            "model._past[0]": INIT + "`self.register_buffer(f'past_{i}', tensor, persistent=False)` for each tensor in "
            "self._past, and read them by these names."
        },
    ),
    "a cache": (
        lambda: Holder(cache={"x": deque([torch.ones(3)])}),
        {
            "model.cache['x'][0]": INIT
            + "`self.register_buffer(f'cache_{key}', tensor, persistent=False)` for each tensor "
            "in self.cache, and read them by these names."
        },
    ),
    "modules in a list": (
        lambda: Holder(heads=[nn.Linear(1, 1, bias=False)]),
        {"model.heads[0].weight": INIT + "`self.heads = nn.ModuleList(...)`."},
    ),
    "modules in a nested list": (
        lambda: Holder(heads=[(nn.Linear(1, 1, bias=False),)]),
        {"model.heads[0][0].weight": INIT + "`self.heads = nn.ModuleList(...)`, and what is nested in it in another."},
    ),
    "modules by number": (
        lambda: Holder(heads={1: nn.Linear(1, 1, bias=False)}),
        {"model.heads[1].weight": INIT + "`self.heads = nn.ModuleDict(...)`, whose keys are strings: str(key)."},
    ),
    "parameters in a list": (
        lambda: Holder(gains=[nn.Parameter(torch.ones(1))]),
        {"model.gains[0]": INIT + "`self.gains = nn.ParameterList(...)`."},
    ),
    "parameters in a dict": (
        lambda: Holder(gains={"a": nn.Parameter(torch.ones(1))}),
        {"model.gains['a']": INIT + "`self.gains = nn.ParameterDict(...)`."},
    ),
    "a module that is not registered": (
        hidden,
        {"model.extra.weight": INIT + "`self.extra = ...` after super().__init__(), which registers the module."},
    ),
    "an object": (
        lambda: Holder(norm=Scaler()),
        {
            "model.norm.mean": "Keep the tensors of model.norm, a Scaler, as buffers of Holder and build it from them when it "
            "is used, or make Scaler an nn.Module that registers them."
        },
    ),
    "a closure": (
        lambda: Holder(fn=captured()),
        {
            "model.fn.bias": "The function captured bias: make it a buffer, `self.register_buffer('bias', bias, "
            "persistent=False)` in Holder.__init__, and read self.bias in the function."
        },
    ),
    "functools.partial": (
        lambda: Holder(fn=functools.partial(torch.add, torch.ones(2))),
        {
            "model.fn.args[0]": "A function remembers it: make it a buffer, `self.register_buffer('tensor', ..., "
            "persistent=False)` in Holder.__init__, and read that in the function."
        },
    ),
    "functools.lru_cache": (
        lambda: Holder(fn=cached()),
        {
            "model.fn.cache[...]": "A functools cache remembers it: put the device among the arguments, or keep it as a "
            "buffer and not in a cache."
        },
    ),
    "a hook": (
        hooked,
        {
            "model.lin._forward_hooks[...].bias": "The function captured bias: make it a buffer, "
            "`self.register_buffer('bias', bias, persistent=False)` in the module that makes model.lin, and read "
            "self.bias in the function."
        },
    ),
    "the body of the class": (
        Tabled,
        {"model.TABLE": "In Tabled.__init__, write `self.register_buffer('table', table, persistent=False)`."},
    ),
    "a default argument": (
        Shifted,
        {
            "model.forward.shift": "shift is a default argument, made once when the function was defined: make it None, and "
            "in the function take self.shift, of `self.register_buffer('shift', shift, persistent=False)` in Shifted.__init__."
        },
    ),
    "state of an optimizer": (
        stepped,
        {
            f"model.opt.state[model.lin.bias]['{key}']": "Move the optimizer as well, `wherry.move(model.opt, device)`, "
            "or construct it after the module has moved."
            for key in ("exp_avg", "exp_avg_sq")
        },
    ),
    "second names": (
        aliased,
        {
            f"model.{name}": f"Read the parameter or buffer itself where it is used: model.{name} is a second name for its "
            "values, and keeps the old ones when it moves."
            for name in ("again", "raw")
        },
    ),
    "an attribute of a parameter": (
        lambda: (m := Holder(), setattr(m.lin.weight, "gain", torch.ones(1)))[0],
        {"model.lin.weight.gain": "Keep it in model.lin beside model.lin.weight: `model.lin.register_buffer(...)`."},
    ),
    "data that a trainer holds": (
        lambda: Holder(data=[torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(3)))]),
        {},
    ),
    "nothing": (Holder, {}),
    "the same parameter in a list": (lambda: (m := Holder(), setattr(m, "same", [m.lin.weight]))[0], {}),
    "an LSTM, which keeps a list of its parameters": (lambda: Holder(rnn=nn.LSTM(2, 2)), {}),
    "a module that holds itself": (lambda: (m := Holder(), setattr(m, "me", [m]))[0], {}),
    "lengths of a packed sequence": (
        lambda: Holder(past=nn.utils.rnn.pack_sequence([torch.ones(2, 3)])),
        {
            "model.past.data": "Keep the tensors of model.past, a PackedSequence, as buffers of Holder and build it from "
            "them when it is used, or make PackedSequence an nn.Module that registers them."
        },
    ),
}


@pytest.mark.parametrize(("make", "expected"), TABLE.values(), ids=TABLE)
def test_what_is_left_behind_and_how_to_mend_it(make: Any, expected: dict[str, str]) -> None:
    strays = left_behind(make())

    assert {stray.path: stray.fix for stray in strays} == expected
    assert all(stray.found.text == stray.path and stray.found.value is stray.tensor for stray in strays)


@pytest.mark.parametrize("make", [make for make, _ in TABLE.values()], ids=TABLE)
def test_it_is_what_module_to_really_leaves(make: Any) -> None:
    """Module.to is the oracle: what is named stays on the host, and all else in the module has moved."""
    model = make()
    counters = 0 if not hasattr(model, "opt") else len(model.opt.state)
    lengths = int(hasattr(model, "past"))

    with wherry.rehearse("cuda"):
        expected = {stray.path for stray in left_behind(model)}
        model.to("cuda")
        leaves = [leaf for leaf in walk([("model", model)]) if isinstance(leaf, Leaf)]
        stayed = {leaf.path() for leaf in leaves if leaf.value.device.type == "cpu"}

        assert expected <= stayed
        assert len(stayed - expected) == counters + lengths
        assert any(leaf.value.device.type == "cuda" for leaf in leaves)


def test_name_of_the_module_is_the_callers() -> None:
    assert [stray.path for stray in left_behind(Holder(scale=torch.ones(1)), "self.net")] == ["self.net.scale"]


def test_weight_of_weight_norm_is_none_and_a_twin_without_the_hook_is_one() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.nn.utils.weight_norm(nn.Linear(2, 2))

    assert left_behind(made) == ()
    made._forward_pre_hooks.clear()
    assert [stray.path for stray in left_behind(made)] == ["model.weight"]


@pytest.mark.parametrize(("options", "count"), [({}, 2), ({"capturable": True}, 3)])
def test_step_counter_is_left_behind_where_it_belongs_on_the_device(options: dict[str, bool], count: int) -> None:
    made = Holder()
    made.opt = torch.optim.Adam([made.lin.bias], **options)
    made.opt.state[made.lin.bias] = {"step": torch.ones(()), "exp_avg": torch.ones(3), "exp_avg_sq": torch.ones(3)}

    assert len(left_behind(made)) == count


def of_a_class() -> Any:
    """Of the older kind, which keeps a scripted module in itself."""

    class Scripted(torch.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(2, 2)
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("mask", torch.ones(2))

        @torch.jit.script_method
        def forward(self, x):  # read by the compiler of TorchScript
            return self.lin(x) + self.weight * self.mask

    return Scripted()


SCRIPTED: dict[str, Any] = {
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))),
    "traced": lambda: torch.jit.trace(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval(), torch.ones(1, 2)),
    "of a class": of_a_class,
    "inside of a module": lambda: nn.Sequential(torch.jit.script(nn.Linear(2, 2)), nn.BatchNorm1d(2)),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("make", SCRIPTED.values(), ids=SCRIPTED)
def test_scripted_modules_have_what_torch_says_they_have(make: Any) -> None:
    """Their registries are no dictionaries, and what they were made of is kept beside their methods."""
    model = make()
    wanted = set(map(id, (*model.parameters(), *model.buffers())))

    with wherry.rehearse("cuda"):
        assert left_behind(model) == ()
        assert {id(leaf.value) for leaf in walk([("model", model)]) if isinstance(leaf, Leaf)} == wanted
        model.to("cuda")
        found = where(model)

    assert [total.name for total in found.devices] == ["cuda:0"]
    assert found.strays == ()
    assert {entry.role for entry in found} == {Role.PARAMETER, Role.BUFFER}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_what_was_hung_into_a_scripted_module_later_is_left_behind() -> None:
    """The twin."""
    model = torch.jit.script(nn.Linear(2, 2))
    model.extra = torch.ones(1)

    assert [stray.path for stray in left_behind(model)] == ["model.extra"]


@pytest.mark.slow
def test_many_modules_take_moderate_time() -> None:
    """14 us a module (torch 2.13, one core of a shared machine); counted in calls, which are the same everywhere."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1, 1), nn.Dropout(), nn.GELU()) for _ in range(200)))
    left_behind(model)
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        left_behind(model)
    finally:
        sys.setprofile(None)

    assert calls < 40 * len(list(model.modules()))


def test_classes_made_on_the_fly_are_not_kept() -> None:
    model = nn.utils.parametrizations.orthogonal(nn.Linear(2, 2))
    gone = weakref.ref(type(model))

    left_behind(model)
    del model
    gc.collect()

    assert gone() is None


class Meta(type):
    """Of classes that run code wherever they are asked something."""

    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(name)

    def __instancecheck__(cls, instance: object) -> bool:
        raise AssertionError


def test_code_of_the_program_does_not_run() -> None:
    class Hostile(metaclass=Meta):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        __iter__ = __repr__ = __eq__ = __hash__ = __getattribute__  # type: ignore[assignment]

    odd, model = object.__new__(Hostile), Holder()
    object.__getattribute__(odd, "__dict__")["inner"] = torch.ones(1)
    vars(model)["odd"] = odd  # torch's own setattr would touch it

    strays = left_behind(model)

    assert [stray.path for stray in strays] == ["model.odd.inner"]


@pytest.mark.slow
def test_nesting_of_any_depth() -> None:
    nest: list[Any] = [torch.ones(1)]
    for _ in range(100_000):
        nest = [nest]

    (stray,) = left_behind(Holder(nest=nest))

    assert stray.path == "model.nest" + "[0]" * 100_001
    assert stray.found.value is stray.tensor


def test_a_state_that_was_taken_off_the_device_is_one_thing_to_mend() -> None:
    with wherry.rehearse("cuda"):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to("cuda")
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        optimizer.step()
        wherry.move(optimizer, "cpu")

        text = str(wherry.where({"model": model, "optimizer": optimizer}, name="state"))

    assert text.count("    fix  ") == 1
    assert "and 7 more  on cpu, not cuda:0" in text
    assert "`wherry.move(state['optimizer'], 'cuda:0')`" in text
