"""PyTorch's Python bindings always say whether memory is to be pinned; what C++ composites make never does.

That is how an allocation the program asked for is told apart from a helper that an op makes for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Allocations(TorchDispatchMode):
    """Notes each factory call: its name, and whether `pin_memory` came along."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(a.name == "device" for a in func._schema.arguments):
            self.seen.append((func._schema.name, "pin_memory" in (kwargs or {})))
        return func(*args, **(kwargs or {}))


PUBLIC: dict[str, Callable[..., Tensor]] = {
    "zeros": lambda **k: torch.zeros(2, **k),
    "ones": lambda **k: torch.ones(2, **k),
    "empty": lambda **k: torch.empty(2, **k),
    "full": lambda **k: torch.full((2,), 1.0, **k),
    "rand": lambda **k: torch.rand(2, **k),
    "randn": lambda **k: torch.randn(2, **k),
    "randint": lambda **k: torch.randint(3, (2,), **k),
    "randperm": lambda **k: torch.randperm(3, **k),
    "arange": lambda **k: torch.arange(3, **k),
    "linspace": lambda **k: torch.linspace(0, 1, 3, **k),
    "logspace": lambda **k: torch.logspace(0, 1, 3, **k),
    "eye": lambda **k: torch.eye(2, **k),
    "empty_strided": lambda **k: torch.empty_strided((2,), (1,), **k),
    "empty_permuted": lambda **k: torch.empty_permuted((2, 2), (1, 0), **k),
    "tril_indices": lambda **k: torch.tril_indices(2, 2, **k),
    "triu_indices": lambda **k: torch.triu_indices(2, 2, **k),
    "hann_window": lambda **k: torch.hann_window(4, **k),
    "hamming_window": lambda **k: torch.hamming_window(4, **k),
    "blackman_window": lambda **k: torch.blackman_window(4, **k),
    "bartlett_window": lambda **k: torch.bartlett_window(4, **k),
    "kaiser_window": lambda **k: torch.kaiser_window(4, **k),
    "fft.fftfreq": lambda **k: torch.fft.fftfreq(4, **k),
    "fft.rfftfreq": lambda **k: torch.fft.rfftfreq(4, **k),
    "zeros_like": lambda **k: torch.zeros_like(BASE, **k),
    "ones_like": lambda **k: torch.ones_like(BASE, **k),
    "empty_like": lambda **k: torch.empty_like(BASE, **k),
    "full_like": lambda **k: torch.full_like(BASE, 1.0, **k),
    "rand_like": lambda **k: torch.rand_like(BASE, **k),
    "randn_like": lambda **k: torch.randn_like(BASE, **k),
    "randint_like": lambda **k: torch.randint_like(BASE, 3, **k),
    "new_zeros": lambda **k: BASE.new_zeros(2, **k),
    "new_ones": lambda **k: BASE.new_ones(2, **k),
    "new_empty": lambda **k: BASE.new_empty(2, **k),
    "new_full": lambda **k: BASE.new_full((2,), 1.0, **k),
    "new_empty_strided": lambda **k: BASE.new_empty_strided((2,), (1,), **k),
    "scalar_tensor": lambda **k: torch.scalar_tensor(1.0, **k),
}

BASE = torch.zeros(2)


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"dtype": torch.float64}], ids=["bare", "device", "dtype"])
@pytest.mark.parametrize("name", PUBLIC)
def test_binding_says_whether_to_pin(name: str, options: dict[str, Any]) -> None:
    if name in {"tril_indices", "triu_indices", "randint", "randint_like"} and "dtype" in options:
        options = {"dtype": torch.int64}

    with Allocations() as allocations:
        PUBLIC[name](**options)

    assert allocations.seen
    assert allocations.seen[0][1], allocations.seen


HELPING: dict[str, Callable[[], object]] = {
    "one_hot": lambda: torch.nn.functional.one_hot(torch.tensor([0, 1])),
    "quantile": lambda: torch.ones(4).quantile(0.5),
    "attention": lambda: torch.nn.functional.scaled_dot_product_attention(*[torch.ones(1, 2, 2)] * 3, is_causal=True),
    "combinations": lambda: torch.combinations(torch.arange(3)),
    "matrix_rank": lambda: torch.linalg.matrix_rank(torch.eye(2)),
    "vander": lambda: torch.vander(torch.arange(3)),
    "label smoothing": lambda: torch.nn.functional.multilabel_margin_loss(torch.ones(2, 3), torch.zeros(2, 3).long()),
    "isclose": lambda: torch.isclose(torch.ones(2), torch.ones(2)),
    "stft": lambda: torch.stft(torch.ones(16), 4, window=torch.ones(4), return_complex=True),
    "cov": lambda: torch.cov(torch.ones(2, 3)),
    "trapezoid": lambda: torch.trapezoid(torch.ones(3)),
}


@pytest.mark.parametrize("name", HELPING)
def test_composite_does_not_say_whether_to_pin(name: str) -> None:
    operands = HELPING[name]
    operands()  # what the lambda itself makes is not under the mode's eye when it is made before

    helpers = [
        pinned
        for op, pinned in helpers_of(operands)
        if op not in {"aten::ones", "aten::eye", "aten::arange", "aten::zeros"}
    ]

    assert not any(helpers)


def helpers_of(call: Callable[[], object]) -> list[tuple[str, bool]]:
    with Allocations() as allocations:
        call()
    return allocations.seen


def test_some_composite_does_make_a_helper() -> None:
    made = [op for name in HELPING for op, pinned in helpers_of(HELPING[name]) if not pinned]

    assert made  # else the test above proves nothing


def test_legacy_constructors_do_not_say_whether_to_pin() -> None:
    with Allocations() as allocations:
        torch.Tensor(2, 3)
        BASE.new(2)

    assert allocations.seen
    assert not any(pinned for _, pinned in allocations.seen)
