"""Asks a CUDA build of torch which dtypes its kernels refuse and the CPU's take: writes tests/data/cuda_dtypes.json anew.

    python scripts/cuda_dtypes.py

Needs a device, or stand-ins for NVIDIA's libraries that say there is one. Those need compute nothing: a kernel's host code
looks at the dtype before it launches anything. Asked are the calls that the file holds, and every entry of PyTorch's
operator database (`torch.testing._internal.common_methods_invocations`) in twelve dtypes, of which the file then has those
that some sample was refused for. Some minutes.

With stand-ins values are nobody's, and what depends on one fails (a negative weight, a matrix that is singular): such texts
are no refusals of dtypes, so that only those of `REFUSAL` count.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_map

FILE = Path(__file__).parents[1] / "tests" / "data" / "cuda_dtypes.json"
REFUSAL = re.compile(r"not implemented for '|Tensor is not supported|FromScalarType\(\) not supported")
DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
)
SAMPLES = 100  # of an entry in a dtype, evenly spaced


def main() -> None:
    known = json.loads(FILE.read_text(encoding="utf-8"))
    calls = [{"code": call["code"], **answer(call["code"])} for call in known["calls"]]
    entries = {op.formatted_name: refused for op in op_db if (refused := refused_dtypes(op))}
    FILE.write_text(text_of({"about": known["about"], "calls": calls, "entries": entries}), encoding="utf-8")


def text_of(content: dict[str, Any]) -> str:
    lines = [f'"about": {json.dumps(content["about"])},', '"calls": [']
    lines.append(",\n".join(json.dumps(call) for call in content["calls"]))
    lines += ["],", '"entries": {']
    lines.append(",\n".join(f"{json.dumps(name)}: {json.dumps(dtypes)}" for name, dtypes in content["entries"].items()))
    return "{" + "\n".join(lines) + "\n}}\n"


def answer(code: str) -> dict[str, str]:
    """What a call on the device says (tests/rehearse/truth/test_cuda_dtypes.py runs the same)."""

    def ones(*sizes: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.ones(*sizes, dtype=dtype, device="cuda")

    try:
        eval(code, {"torch": torch, "F": torch.nn.functional, "aten": torch.ops.aten, "x": ones})
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is asked for
        return {"raises": type(error).__name__, "says": str(error).split("\n")[0]}
    return {}


def refused_dtypes(op: OpInfo) -> list[str]:
    """The dtypes for which the device refuses a sample that the CPU takes, forward or backward."""
    return [str(dtype).removeprefix("torch.") for dtype in DTYPES if any(refusals(op, dtype))]


def refusals(op: OpInfo, dtype: torch.dtype) -> Iterator[bool]:
    differentiable = (dtype.is_floating_point or dtype.is_complex) and op.supports_autograd
    for requires_grad in (False, True) if differentiable else (False,):
        try:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))
        except Exception:  # noqa: BLE001 - an entry may not know how to make samples of a dtype that nobody supports
            continue
        for sample in samples[:: -(-len(samples) // SAMPLES) or 1]:
            given = ((sample.input, *sample.args), sample.kwargs)
            if failure(op, given) is None:
                yield REFUSAL.search(failure(op, tree_map(on_device, given)) or "") is not None


def failure(op: OpInfo, given: tuple[Any, Any]) -> str | None:
    args, kwargs = given
    try:
        out = op(*args, **kwargs)
        inputs = [t for t in tree_flatten(given)[0] if isinstance(t, Tensor) and t.requires_grad]
        outputs = [t for t in tree_flatten(out)[0] if isinstance(t, Tensor) and t.requires_grad]
        if inputs and outputs:
            torch.autograd.grad(outputs, inputs, [torch.ones_like(t) for t in outputs], allow_unused=True)
    except Exception as error:  # noqa: BLE001 - as above
        return str(error)
    return None


def on_device(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cuda").requires_grad_(value.requires_grad)
    return "cuda" if value in ("cpu", torch.device("cpu")) else value


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit(f"torch {torch.__version__} sees no CUDA device.")
    warnings.simplefilter("ignore")
    main()
