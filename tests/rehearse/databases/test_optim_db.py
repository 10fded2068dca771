"""PyTorch's own optimizer database: every optimizer, every configuration and implementation, steps as on the CPU.

After some steps the parameters and the optimizer's state are those of the CPU, bit for bit, and reside on the
device. The CPU is asked for the same implementation: for `capturable`, which it refuses otherwise, it is told
that it may.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_optimizers import (
    OptimizerInput,
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_db,
)

from wherry.rehearse import rehearse

sys.path.insert(0, str(Path(__file__).parent))
try:
    from _comparing import same_values, seed
finally:
    sys.path.pop(0)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ENTRIES = {info.optim_cls.__name__: info for info in optim_db}
SHAPES = ((3, 4), (5,), (), (2, 3, 2))
STEPS = 4


def configurations(name: str, device: str) -> list[OptimizerInput]:
    """Every configuration for a device, each with every implementation: for-loop, foreach, fused, differentiable."""
    return _get_optim_inputs_including_global_cliquey_kwargs(device, torch.float32, ENTRIES[name])


def parameters(name: str, device: str, dtype: torch.dtype, *, differentiable: bool) -> list[Tensor]:
    shapes = [shape for shape in SHAPES if len(shape) == 2] if name == "Muon" else SHAPES
    generator = torch.Generator().manual_seed(2)
    drawn = [torch.randn(shape, dtype=dtype, generator=generator).to(device).requires_grad_() for shape in shapes]
    # A leaf cannot be stepped in a graph, and a clone of one can.
    return [p.clone() for p in drawn] if differentiable else drawn


def give_gradients(params: list[Tensor], step: int, *, sparse: bool) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in params:
        gradient = torch.randn(p.shape, dtype=p.dtype, generator=generator)
        if sparse:
            gradient = gradient.relu().to_sparse() if gradient.dim() else gradient.reshape(1).to_sparse()
        p.grad = gradient.to(p.device)


def trained(name: str, device: str, kwargs: dict[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    """The parameters, the state and their places after some steps, or the type of what was raised."""
    info = ENTRIES[name]
    differentiable = bool(kwargs.get("differentiable"))
    params = parameters(name, device, dtype, differentiable=differentiable)
    if info.only_supports_sparse_grads:
        params = [p for p in params if p.dim()]
    optimizer = info.optim_cls(params, **kwargs)
    for step in range(STEPS):
        give_gradients(params, step, sparse=info.only_supports_sparse_grads)
        if info.step_requires_closure:
            optimizer.step(lambda params=params: sum((p * p.grad).sum() for p in params))
        else:
            optimizer.step()
    state = [
        {key: value for key, value in optimizer.state[p].items() if key not in ("func_evals", "n_iter")} for p in params
    ]
    if differentiable:  # the graph holds tensors that hold the graph, in C++, where Python's collector does not come
        for tensor in (*params, *(value for of in state for value in of.values() if isinstance(value, Tensor))):
            tensor.detach_()
    return params, state


@contextmanager
def capturable_on_the_cpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in [m for n, m in sys.modules.items() if n.startswith("torch.optim")]:
            if hasattr(module, "_get_capturable_supported_devices"):
                patch.setattr(module, "_get_capturable_supported_devices", lambda **_: ["cpu", "cuda", "xpu"])
        yield


def on_the_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: value.detach().cpu() if isinstance(value, Tensor) else value for key, value in kwargs.items()}


def outcome(name: str, device: str, kwargs: dict[str, Any], dtype: torch.dtype) -> Any:
    seed(device)
    try:
        return trained(name, device, kwargs, dtype)
    except Exception as error:
        return type(error)


def elsewhere(result: Any, device: str) -> set[str]:
    """Where else the parameters are, and the state of their shape. A count of steps may be on the host."""
    params, state = result
    found = [str(p.device) for p in params]
    found += [str(value.device) for of in state for value in of.values() if isinstance(value, Tensor) and value.dim()]
    return set(found) - {device}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("device", ["cuda", "xpu"])
@pytest.mark.parametrize("name", ENTRIES)
def test_every_configuration_steps_as_on_the_cpu(name: str, device: str, dtype: torch.dtype) -> None:
    wrong = []
    with rehearse(device) as rehearsal:
        inputs = configurations(name, rehearsal.device)
        results = [outcome(name, rehearsal.device, dict(given.kwargs), dtype) for given in inputs]
        strays = [set() if isinstance(result, type) else elsewhere(result, rehearsal.device) for result in results]
    assert len(inputs) > 2

    for given, got, astray in zip(inputs, results, strays, strict=True):
        with capturable_on_the_cpu():
            wanted = outcome(name, "cpu", on_the_cpu(given.kwargs), dtype)
        if isinstance(wanted, type) or isinstance(got, type):
            if got is not wanted:
                wrong.append(f"{given.desc} {given.kwargs}: {got!r} instead of {wanted!r}")
            continue
        if not same_values(got, wanted):
            wrong.append(f"{given.desc} {given.kwargs}: other values")
        if astray:
            wrong.append(f"{given.desc} {given.kwargs}: on {astray}")

    assert wrong == []


@pytest.mark.parametrize("device", ["cuda", "xpu"])
@pytest.mark.parametrize("flag", ["foreach", "fused", "capturable"])
def test_steps_are_counted_where_the_implementation_needs_them(flag: str, device: str) -> None:
    with rehearse(device) as rehearsal:
        _, state = trained("Adam", rehearsal.device, {flag: True})
        found = {str(of["step"].device) for of in state}

    assert found == ({"cpu"} if flag == "foreach" else {f"{device}:0"})


def test_every_implementation_is_tried() -> None:
    with rehearse("cuda"):
        tried = {
            (flag, name)
            for name in ENTRIES
            for given in configurations(name, "cuda")
            for flag in ("foreach", "fused", "capturable", "differentiable")
            if given.kwargs.get(flag)
        }

    assert {name for flag, name in tried if flag == "fused"} >= {"Adam", "AdamW", "SGD", "Adagrad"}
    for flag in "foreach", "capturable", "differentiable":
        assert len([name for other, name in tried if other == flag]) >= 9


def test_database_has_the_entries_it_had() -> None:
    assert len(ENTRIES) >= 14
