"""A kernel of CUDA refuses the dtypes that it lacks, in the words of the host code of the real build.

`tests/data/cuda_dtypes.json` holds calls with what torch 2.13.0+cu130 answered. Only the host code ran there, so values are not
compared. For PyTorch's operator database see ../databases/test_op_db.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from wherry.rehearse import Rehearsal, rehearse
from wherry.rehearse.wording import torch_release

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(torch_release() != (2, 13), reason="the answers are those of torch 2.13, whose words they are"),
]

CALLS: list[dict[str, str]] = json.loads(
    (Path(__file__).parents[2] / "data" / "cuda_dtypes.json").read_text(encoding="utf-8")
)["calls"]


def answer(code: str, device: str) -> tuple[str, str] | None:
    """The exception that a call raises, and its first line."""

    def ones(*sizes: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.ones(*sizes, dtype=dtype, device=device)

    try:
        eval(code, {"torch": torch, "F": F, "aten": torch.ops.aten, "x": ones})
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]
    return None


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call["code"])
def test_call_is_answered_as_by_the_host_code(call: dict[str, str], cuda: Rehearsal) -> None:
    wanted = (call["raises"], call["says"]) if call.get("raises") else None

    assert answer(call["code"], "cuda") == wanted


@pytest.mark.parametrize("call", [c for c in CALLS if "conv" not in c["code"]], ids=lambda call: call["code"])
def test_rocm_has_the_same_kernels(call: dict[str, str]) -> None:
    """But for convolutions (../test_kernels.py)."""
    wanted = (call["raises"], call["says"]) if call.get("raises") else None

    with rehearse("rocm"):
        assert answer(call["code"], "cuda") == wanted


def test_host_answers_otherwise() -> None:
    """The twin: what is refused is refused for the device alone."""
    told = [
        call for call in CALLS if call.get("raises") == "NotImplementedError" and answer(call["code"], "cpu") is None
    ]

    assert len(told) > 80
