"""PyTorch's own module database: every module of torch.nn computes on a device what it computes on the CPU.

Outputs, the gradients of inputs and parameters, and buffers afterwards agree bit for bit, in training and evaluation, and
reside on the device.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_map

from wherry.rehearse import rehearse

sys.path.insert(0, str(Path(__file__).parent))
try:
    from _comparing import Sample, on_the_cpu, same_values, seed, tensors
finally:
    sys.path.pop(0)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("database")]

ENTRIES = {info.formatted_name: info for info in module_db}


def samples_of(name: str, device: str, dtype: torch.dtype, *, training: bool) -> list[tuple[Sample, Sample]]:
    """What modules are made with, and what they are called with."""
    info = ENTRIES[name]
    torch.manual_seed(0)
    inputs = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=training)
    made = []
    for given in inputs:
        if given.forward_input is None:
            continue
        made.append(
            (
                Sample(tuple(given.constructor_input.args), given.constructor_input.kwargs),
                Sample(tuple(given.forward_input.args), given.forward_input.kwargs),
            )
        )
    return made


def computed(name: str, device: str, dtype: torch.dtype, make: Sample, call: Sample, *, training: bool) -> Any:
    """Outputs, gradients and buffers of one module, or the type of what was raised."""
    seed(device)
    try:
        module: nn.Module = ENTRIES[name].module_cls(*make.args, **make.kwargs).to(device, dtype).train(training)
        seed(device)
        returned = module(*call.args, **call.kwargs)
        outputs = [t for t in tensors(returned) if t.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    except Exception as error:
        return type(error)
    inputs = [t.grad for t in tensors((call.args, call.kwargs)) if t.requires_grad]
    return returned, inputs, [p.grad for p in module.parameters()], list(module.parameters()), list(module.buffers())


def leaves(sample: Sample) -> Sample:
    def leaf(value: Any) -> Any:
        return value.detach().requires_grad_() if isinstance(value, Tensor) and value.requires_grad else value

    return Sample(*tree_map(leaf, (sample.args, sample.kwargs)))


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("device", ["cuda", "xpu"])
@pytest.mark.parametrize("name", ENTRIES)
def test_module_computes_what_it_computes_on_the_cpu(name: str, device: str, training: bool) -> None:
    wrong = []
    dtypes = [d for d in (torch.float32, torch.float64) if d in ENTRIES[name].supported_dtypes("cpu")]
    for dtype in dtypes or list(ENTRIES[name].supported_dtypes("cpu"))[:1]:
        with rehearse(device) as rehearsal:
            samples = [
                (make, leaves(call)) for make, call in samples_of(name, rehearsal.device, dtype, training=training)
            ]
        copies = [tuple(on_the_cpu(list(pair))) for pair in samples]
        with rehearse(device) as rehearsal:
            results = [computed(name, rehearsal.device, dtype, *pair, training=training) for pair in samples]
            elsewhere = [{str(t.device) for t in tensors(result)} - {rehearsal.device} for result in results]
        assert samples
        for number, (pair, got, strays) in enumerate(zip(copies, results, elsewhere, strict=True)):
            wanted = computed(name, "cpu", dtype, *pair, training=training)
            if isinstance(wanted, type) or isinstance(got, type):
                if got is not wanted:
                    wrong.append(f"{dtype} sample {number}: {got!r} instead of {wanted!r}")
                continue
            if strays:
                wrong.append(f"{dtype} sample {number}: on {strays}")
            if not same_values(got, wanted):
                wrong.append(f"{dtype} sample {number}: other values")

    assert wrong == []


def test_database_has_the_entries_it_had() -> None:
    assert len(ENTRIES) > 100
