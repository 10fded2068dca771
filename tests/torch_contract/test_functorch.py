"""Wrappers of function transforms can be told apart and opened."""

from __future__ import annotations

import torch
from torch import Tensor


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
    from torch.utils._python_dispatch import TorchDispatchMode

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
