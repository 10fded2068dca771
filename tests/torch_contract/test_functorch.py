"""Wrappers of function transforms can be told apart and opened."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from wherry.dispatch import is_batched_gradient, is_transforming


def test_wrapper_is_known_and_opened() -> None:
    seen: list[tuple[bool, bool]] = []

    def look(x: Tensor) -> Tensor:
        inner = torch._C._functorch.get_unwrapped(x)
        seen.append(
            (torch._C._functorch.is_functorch_wrapped_tensor(x), torch._C._functorch.is_functorch_wrapped_tensor(inner))
        )
        return x * 2

    torch.func.vmap(look)(torch.ones(3))
    torch.func.grad(lambda x: look(x).sum())(torch.ones(3))

    assert seen == [(True, False), (True, False)]
    assert not torch._C._functorch.is_functorch_wrapped_tensor(torch.ones(1))


def test_ops_of_a_transform_reach_a_mode_unwrapped() -> None:
    seen: list[bool] = []

    class Looks(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
        ) -> object:
            seen.extend(torch._C._functorch.is_functorch_wrapped_tensor(a) for a in args if isinstance(a, Tensor))
            return func(*args, **(kwargs or {}))  # type: ignore[operator,dict-item]

    with Looks():
        torch.func.vmap(lambda x: x * 2)(torch.ones(3))

    assert seen
    assert not any(seen)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch loads parts of itself on the first transform
def test_transform_is_seen_from_below() -> None:
    answers: list[bool] = []

    class Asking(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            answers.append(is_transforming())
            return func(*args, **(kwargs or {}))

    x = torch.ones(3)
    with Asking():
        torch.func.grad(lambda x: x.exp().sum())(x)
        torch.func.vmap(torch.exp)(x)
        with torch.autograd.forward_ad.dual_level():
            torch.exp(x)
        below, plain = len(answers), torch.exp(x)

    assert plain.shape == (3,)
    assert answers == [True] * below + [False]


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch loads parts of itself on the first transform
def test_gradients_of_a_batch_are_of_another_kind() -> None:
    kinds: list[bool] = []
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda g: kinds.append(is_batched_gradient(g)))

    torch.autograd.grad(y, x, torch.eye(2), retain_graph=True, is_grads_batched=True)
    torch.autograd.grad(y, x, torch.ones(2))

    assert kinds == [True, False]
