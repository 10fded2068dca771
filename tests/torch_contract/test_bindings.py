"""torch's Python bindings, given the arguments that a dispatch mode is handed, call the very overload it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core as opinfo_core
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from wherry.dispatch import BOUND, runner, signature

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Recording(TorchDispatchMode):
    """Notes every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


class Stop(Exception):
    """What was called is known."""


class Catching(Recording):
    """Notes a call, and does not make it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args, kwargs or {}))
        raise Stop


def reached(call: Call) -> list[Call]:
    """What a mode sees when an op runs by `runner` as it does below a mode."""
    func, args, kwargs = call
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU) | torch._C.DispatchKeySet(
        torch._C.DispatchKey.ADInplaceOrView
    )
    with Catching() as catching:
        try:
            with torch._C._ExcludeDispatchKeyGuard(below):
                runner(func)(*args, **kwargs)
        except Stop:
            pass
    return catching.calls


def is_same(one: Call, other: Call) -> bool:
    (func, *arguments), (wanted, *expected) = one, other
    got, want = tree_flatten(arguments)[0], tree_flatten(expected)[0]
    return (
        func is wanted
        and len(got) == len(want)
        and all(
            a is b if isinstance(a, Tensor) else type(a) is type(b) and a == b for a, b in zip(got, want, strict=True)
        )
    )


def name_of(func: Any) -> str:
    return signature(func).name.removeprefix("aten::")


def calls_of_the_database() -> Iterator[Call]:
    """What the first samples of every entry call, forwards and backwards, once for each overload and kind of arguments."""
    for entry in op_db:
        if not entry.supports_dtype(torch.float32, "cpu"):
            continue
        torch.manual_seed(0)
        many = entry.sample_inputs("cpu", torch.float32, requires_grad=entry.supports_autograd)
        for sample, _ in zip(many, range(4), strict=False):
            yield from calls_of(entry, sample)


def calls_of(entry: Any, sample: Any) -> list[Call]:
    with Recording() as recording:
        try:
            out = entry.op(sample.input, *sample.args, **sample.kwargs)
            outputs = [t for t in tree_flatten(out)[0] if isinstance(t, Tensor) and t.requires_grad]
            torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
        except Exception:
            pass  # no kernel here (jiterator), or no gradient
    return recording.calls


def optimizers_and_their_kin() -> list[Call]:
    """What the foreach implementations of the optimizers call, and ops in place, which the database has as variants."""
    with Recording() as recording:
        for make in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad):
            for extra in ({}, {"amsgrad": True}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1}):
                params = [torch.ones(3, requires_grad=True) for _ in range(3)]
                for p in params:
                    p.grad = torch.ones(3)
                try:
                    optimizer = make(params, foreach=True, lr=0.1, **extra)
                except TypeError:
                    continue
                optimizer.step()
                optimizer.step()
        torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        torch.nn.functional.relu_(torch.ones(3))
        a, b = [torch.ones(2)], [torch.full((2,), 2.0)]
        for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
            getattr(torch, f"_foreach_{name}")(a, b)
            getattr(torch, f"_foreach_{name}_")(a, b)
            getattr(torch, f"_foreach_{name}")(a, 2.0)
            getattr(torch, f"_foreach_{name}_")(a, 2.0)
        for name in ("sqrt", "neg", "exp", "reciprocal"):
            getattr(torch, f"_foreach_{name}")(a)
            getattr(torch, f"_foreach_{name}_")(a)
        for name in ("addcmul_", "addcdiv_"):
            getattr(torch, f"_foreach_{name}")(a, b, b, 0.5)
            getattr(torch, f"_foreach_{name}")(a, b, b, [0.5])
            getattr(a[0], name)(b[0], b[0], value=0.5)
        a[0].lerp_(b[0], 0.5).sub_(b[0])
    return recording.calls


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (common_utils, opinfo_core):
            patch.setattr(module, "extract_test_fn", lambda: None)
        found = [*calls_of_the_database(), *optimizers_and_their_kin()]
    return [call for call in found if name_of(call[0]) in BOUND]


def test_binding_reaches_the_overload_it_stands_for(calls: list[Call]) -> None:
    wrong = {
        name_of(call[0]) for call in calls for seen in [reached(call)] if len(seen) != 1 or not is_same(seen[0], call)
    }

    assert wrong == set()


def test_binding_returns_what_the_overload_returns(calls: list[Call]) -> None:
    wrong = set()
    for func, args, kwargs in {name_of(call[0]): call for call in calls}.values():
        returns = [str(r.type) for r in func._schema.returns]
        found = runner(func)(*args, **kwargs)
        if returns == ["Tensor"] and type(found) is Tensor:
            continue
        if returns == ["List[Tensor]"] and type(found) in (list, tuple):
            continue
        wrong.add(name_of(func))

    assert wrong == set()


def test_every_bound_overload_was_tried(calls: list[Call]) -> None:
    assert {name_of(func) for func, _, _ in calls} == set(BOUND)


def test_every_bound_overload_exists() -> None:
    packets = {name: getattr(torch.ops.aten, name.partition(".")[0]) for name in BOUND}

    assert [n for n, packet in packets.items() if (n.partition(".")[2] or "default") not in packet.overloads()] == []
