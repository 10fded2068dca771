"""Autocast of a virtual cuda casts what autocast of the CUDA build casts, operator by operator.

tests/data/cuda_autocast.json holds, for the first three samples of the entries of PyTorch's operator database, in float32
and in float16, the dtypes that torch 2.13.0+cu130 returned under `torch.autocast("cuda", torch.bfloat16)`: a letter for
each tensor, or "!" where its autocast refused the dtypes. Only host code ran there, no kernel, so values were not
compared; entries that need a value (nonzero, solvers) are missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

from wherry.dispatch import autocast_list
from wherry.rehearse import rehearse
from wherry.rehearse.impersonate import autocast
from wherry.rehearse.wording import torch_release

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("database"),
    pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="this torch does not give its kernels away"),
]

ANSWERS: dict[str, dict[str, list[str | None]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "cuda_autocast.json").read_text(encoding="utf-8")
)
ENTRIES = {entry.formatted_name: entry for entry in op_db}

LETTERS = {
    torch.float32: "f",
    torch.bfloat16: "b",
    torch.float16: "h",
    torch.float64: "d",
    torch.int64: "l",
    torch.int32: "i",
    torch.int16: "s",
    torch.int8: "y",
    torch.uint8: "B",
    torch.uint64: "L",
    torch.bool: "?",
    torch.complex32: "C",
    torch.complex64: "c",
    torch.complex128: "D",
}

_INSIDE = "a kernel that is made of other ops, which a device casts too, runs here below autocast"
_STATISTICS = "a device keeps the statistics of half-precision batches in float32, and the CPU in half precision"

NOT_YET = {
    "_batch_norm_with_update": _STATISTICS,
    "_native_batch_norm_legit": _STATISTICS,
    "_unsafe_masked_index_put_accumulate": _INSIDE,
    "ldexp": _INSIDE,
    "linalg_pinv": _INSIDE,
    "linalg_pinv_hermitian": _INSIDE,
    "native_batch_norm": _STATISTICS,
    "pinverse": _INSIDE,
    "trace": _INSIDE,
}
"""Entry -> why a rehearsal answers otherwise."""


def answer(entry: Any, sample: Any) -> str:
    """A letter for the dtype of each tensor that an op returns under autocast."""

    def on_the_device(value: Any) -> Any:
        return value.to("cuda") if isinstance(value, Tensor) else "cuda" if value == "cpu" else value

    sample = sample.transform(on_the_device)
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            returned = entry(sample.input, *sample.args, **sample.kwargs)
    except RuntimeError as error:
        return "!" if "autocast" in str(error) else str(error)
    return "".join(LETTERS[leaf.dtype] for leaf in tree_flatten(returned)[0] if isinstance(leaf, Tensor))


def entries() -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=NOT_YET[name], strict=True)) if name in NOT_YET else name
        for name in ANSWERS
    ]


@pytest.mark.skipif(torch_release() != (2, 13), reason="the answers are those of torch 2.13")
@pytest.mark.parametrize("name", entries())
def test_dtypes_are_those_of_the_cuda_build(name: str) -> None:
    entry = ENTRIES[name]
    found: dict[str, list[str | None]] = {}
    for letter, wanted in ANSWERS[name].items():
        dtype = next(dtype for dtype, known in LETTERS.items() if known == letter)
        torch.manual_seed(0)
        samples = list(zip(entry.sample_inputs("cpu", dtype, requires_grad=False), wanted, strict=False))
        with rehearse("cuda"):
            found[letter] = [None if known is None else answer(entry, sample) for sample, known in samples]

    assert found == ANSWERS[name]


@pytest.mark.parametrize("device_type", ["cuda", "mps", "xpu"])
def test_every_op_of_a_devices_list_is_known(device_type: str) -> None:
    known = autocast.TO_LOWER | autocast.TO_FLOAT32 | autocast.TO_FLOAT32_UNLESS_TOLD | autocast.TO_WIDEST

    assert autocast_list(device_type) - known - autocast.BANNED == set()


def test_most_entries_were_asked() -> None:
    assert len(ANSWERS) > 500
    assert len(NOT_YET) < 0.02 * len(ANSWERS)
