"""Each tensor of a call moved alone: the rehearsed device objects where the host code of the CUDA build does, and as it does.

`tests/data/device_moves.json` holds calls of 240 overloads with what torch 2.13.0+cu130 said when one of their tensors was
elsewhere. Only the host code ran there, no kernels. The kinds of objection are compared here; the words are another
matter: see test_oracle.py and test_mismatch_matrix.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from wherry.rehearse import Rehearsal

# Some of the ops are deprecated or in beta, and torch says so.
pytestmark = pytest.mark.filterwarnings("ignore")

CALLS = json.loads((Path(__file__).parents[2] / "data" / "device_moves.json").read_text(encoding="utf-8"))["calls"]
CASES = {
    f"{name} {number}": call for name, calls in CALLS.items() for number, call in enumerate(calls)
}  # "mm 0" and "mm 1": of two shapes

DTYPES = {
    "L": torch.int64, "B": torch.bool, "I": torch.int32, "D": torch.float64, "C64": torch.complex64, "U8": torch.uint8,
    "C128": torch.complex128, "H": torch.float16,
}  # fmt: skip


class Cast:
    """The tensors of a call: all of them at one device but one, which is somewhere else or a 0-dim stranger."""

    def __init__(self, here: str, *, moved: int = -1, there: str = "", scalar: bool = False) -> None:
        self.here, self.moved, self.there, self.scalar = here, moved, there, scalar
        self.seen = 0

    def tensor(self, sizes: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
        number, self.seen = self.seen, self.seen + 1
        if number != self.moved:
            return torch.ones(sizes, dtype=dtype, device=self.here)
        return torch.ones([] if self.scalar else sizes, dtype=dtype, device=self.there)


def verdict(call: str, cast: Cast) -> str:
    """ "ok", or the text of the device error that a call raises."""
    names = {"T": cast.tensor, "aten": torch.ops.aten, "torch": torch, **DTYPES}
    try:
        eval(call, names)
    except Exception as error:
        return str(error)
    return "ok"


DIRECTIONS = {
    "one_cpu": ("cuda:0", "cpu", False),
    "one_cpu_0dim": ("cuda:0", "cpu", True),
    "one_cuda": ("cpu", "cuda:0", False),
    "one_cuda_0dim": ("cpu", "cuda:0", True),
}

DIFFERENT_KERNELS = {
    "_fused_rms_norm": "on the CPU it is made of other ops, which is settled before a dispatch mode sees the call",
    "_scaled_dot_product_efficient_attention_backward": "this build has no kernel for it, so what passes the checks fails",
    "soft_margin_loss_backward": "its first op writes to a helper like self, and a rehearsal knows only what that op reads",
}
"""Overload -> why some of its moves are judged otherwise for now."""

UNRUNNABLE = {
    **dict.fromkeys(
        (
            "_fused_rms_norm_backward", "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_efficient_attention_backward", "cudnn_batch_norm", "cudnn_grid_sampler",
            "cudnn_grid_sampler_backward",
        ),
        "only a device has a kernel for it",
    ),
    **dict.fromkeys(
        (
            "histogram.bins_tensor", "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors",
        ),
        "only the CPU has a kernel for it",
    ),
    **dict.fromkeys(("_embedding_bag", "linalg_lstsq", "segment_reduce"), "it takes offence at tensors full of ones"),
}  # fmt: skip
"""Overload -> why its calls do not run here even when all tensors are together."""

TELLING = {"codegen": "when checking argument", "TI": "but found at least two devices"}
"""The part of a message that tells the kinds of objection apart; a check of the op itself has neither."""


def agrees(said: str, wanted: str) -> bool:
    if wanted == "ok" or said == "ok":
        return said == wanted
    return next((kind for kind, part in TELLING.items() if part in said), "own") == wanted


def moves(case: dict[str, dict[str, str]]) -> list[tuple[str, int, str]]:
    return [(way, int(position), wanted) for way in DIRECTIONS for position, wanted in case[way].items()]


def misjudged(name: str) -> list[str]:
    """The moves of a call that are judged otherwise than by the CUDA build, in words."""
    case = CASES[name]
    found = []
    for way, position, wanted in moves(case):
        here, there, scalar = DIRECTIONS[way]
        said = verdict(case["call"], Cast(here, moved=position, there=there, scalar=scalar))
        if not agrees(said, wanted):
            found.append(f"tensor {position}, {way}: {said!r} where {wanted} was recorded")
    return found


@pytest.mark.parametrize("name", CASES)
def test_moving_one_tensor_of_a_call_is_judged_as_by_the_cuda_build(
    name: str, cuda: Rehearsal, request: pytest.FixtureRequest
) -> None:
    overload = name.split(" ", 1)[0]
    if overload in DIFFERENT_KERNELS:
        request.applymarker(pytest.mark.xfail(reason=DIFFERENT_KERNELS[overload], strict=True))

    assert misjudged(name) == []


@pytest.mark.parametrize("name", CASES)
def test_call_whose_tensors_are_together_runs(name: str, cuda: Rehearsal) -> None:
    overload = name.split(" ", 1)[0]

    assert (verdict(CASES[name]["call"], Cast("cuda:1")) == "ok") == (overload not in UNRUNNABLE)


def test_almost_every_move_is_judged_alike(cuda: Rehearsal) -> None:
    wrong = sum(len(misjudged(name)) for name in CASES if name.split(" ", 1)[0] in DIFFERENT_KERNELS)

    assert wrong <= 0.01 * sum(len(moves(case)) for case in CASES.values())
