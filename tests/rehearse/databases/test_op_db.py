"""PyTorch's own operator database as an oracle: on a virtual device every operator gives what it gives on the CPU.

Values and gradients, in every dtype that an entry supports of the seven that programs use. Where the database says that CUDA
lacks a dtype which the CPU has, the device refuses. The database leans on names
that warn, which is its own business, so warnings are no errors here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from wherry.rehearse import rehearse
from wherry.rehearse.wording import torch_release

sys.path.insert(0, str(Path(__file__).parent))
try:
    from _comparing import (
        DEVICES,
        Reference,
        Sample,
        disagreements,
        gradients_of,
        lacked_by_cuda,
        listened_to,
        outcome,
        same_values,
    )
finally:
    sys.path.pop(0)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("database")]

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.bool,
    torch.complex64,
)

NOT_REPRODUCIBLE = ("linalg_lstsq", "linalg_lstsq_grad_oriented")
"""Entries that do not give the same bits twice on plain CPU: LAPACK's gelsy is handed pivots that nobody initialised
(aten/src/ATen/native/BatchLinearAlgebra.cpp, `linalg_lstsq`: jpvt is at::empty). Their other drivers agree.
"""

OF_THE_DEVICE = ("nn_functional_linear_cross_entropy_chunked", "nn_functional_linear_cross_entropy_chunked_none")
"""Entries that PyTorch computes otherwise on a device, in half precision: it asks for products that are summed and
returned in float32 (torch/nn/functional.py, `linear_cross_entropy`), and so does a rehearsal.
"""

NOT_ON = dict.fromkeys(("histogram", "histogramdd"), ("cuda", "rocm", "xpu")) | dict.fromkeys(
    ("nn_functional_adaptive_avg_pool1d", "nn_functional_adaptive_avg_pool2d", "nn_functional_interpolate_area"),
    ("mps",),
)
"""Entries that a device has no kernel for, or none for some of their sizes, and no way through the CPU."""

EXCEPTIONS = NOT_REPRODUCIBLE + OF_THE_DEVICE
"""Every exception; each has a test that shows its reason. At most five."""

UNDEFINED_VALUES = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
"""Entries that return memory as they find it: shape, strides, dtype and device are all they promise."""

COSTLY = {"grid_sampler_3d": 8}
"""Entries of which every so manieth sample is taken in half precision, which the CPU computes slowly."""

REFUSAL = re.compile(r"^sample \d+: <class '(NotImplementedError|RuntimeError)'> instead of ")

ASKED = (*DTYPES, torch.uint8, torch.int8, torch.int16, torch.int32, torch.complex128)
REFUSED: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[2] / "data" / "cuda_dtypes.json").read_text(encoding="utf-8")
)["entries"]

ENTRIES = {op.formatted_name: op for op in op_db}


def supported() -> list[Any]:
    return [
        pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
        for name, op in ENTRIES.items()
        for dtype in DTYPES
        if op.supports_dtype(dtype, "cpu") and not is_exception(name, dtype)
    ]


def is_exception(name: str, dtype: torch.dtype) -> bool:
    return name in NOT_REPRODUCIBLE or (name in OF_THE_DEVICE and dtype.itemsize == 2)


def is_differentiable(name: str, dtype: torch.dtype) -> bool:
    op = ENTRIES[name]
    can = dtype.is_floating_point or dtype.is_complex
    return can and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def samples_of(name: str, dtype: torch.dtype, device: str, *, requires_grad: bool) -> list[Sample]:
    """Samples on a device; what requires a gradient is a leaf."""

    def leaf(value: Any) -> Any:
        return value.detach().requires_grad_() if isinstance(value, Tensor) and value.requires_grad else value

    torch.manual_seed(0)
    inputs = ENTRIES[name].sample_inputs(device, dtype, requires_grad=requires_grad)
    samples = [Sample(*tree_map(leaf, ((s.input, *s.args), s.kwargs))) for s in inputs]
    return samples[:: COSTLY.get(name, 1)] if dtype.itemsize == 2 else samples


def made_on(device: str, name: str, dtype: torch.dtype = torch.float32, *, requires_grad: bool = False) -> list[Sample]:
    with rehearse(device, fallback=True) as rehearsal:
        return samples_of(name, dtype, rehearsal.device, requires_grad=requires_grad)


def spoken(name: str) -> Callable[..., Any]:
    """The function as a program writes it. The database took it by name before any rehearsal began."""
    op = ENTRIES[name]
    if getattr(torch, op.name, None) is not op.op:
        return op.op

    def function(*args: Any, **kwargs: Any) -> Any:
        return getattr(torch, op.name)(*args, **kwargs)

    return function


def found_on(
    devices: tuple[str, ...], name: str, dtype: torch.dtype, function: Callable[..., Any], *, requires_grad: bool
) -> list[str]:
    """Every disagreement of an entry with the CPU, which is asked once."""
    found: list[str] = []
    reference = None
    for device in devices:
        if name in NOT_ON and device in NOT_ON[name]:
            continue
        samples = made_on(device, name, dtype, requires_grad=requires_grad)
        if reference is None or not reference.is_for(samples):
            reference = Reference(function, samples)
        assert samples
        sentences = disagreements(function, samples, device, reference=reference, defined=name not in UNDEFINED_VALUES)
        wrong = (
            without_refusals(list(sentences)) if lacks(device, name, dtype, requires_grad=requires_grad) else sentences
        )
        found += [f"{device}, {sentence}" for sentence in wrong]
    return found


def lacks(device: str, name: str, dtype: torch.dtype, *, requires_grad: bool) -> bool:
    """Whether a device has no kernel for a dtype which the CPU has, as far as the database knows: of CUDA."""
    return device in ("cuda", "rocm") and dtype in lacked_by_cuda(ENTRIES[name], backward=requires_grad)


def without_refusals(sentences: list[str]) -> list[str]:
    """What is wrong with an entry in a dtype that the device lacks: it refuses no sample, or gives others than the CPU does."""
    refusals = [sentence for sentence in sentences if REFUSAL.search(sentence)]
    wrong = [sentence for sentence in sentences if sentence not in refusals]
    return wrong if refusals else [*wrong, "no sample is refused"]


@pytest.mark.parametrize(("name", "dtype"), supported())
def test_entry_agrees_with_the_cpu_and_stays_on_the_device(name: str, dtype: torch.dtype) -> None:
    function = spoken(name)
    devices = DEVICES if dtype is torch.float32 else ("cuda", "xpu")
    differentiable = is_differentiable(name, dtype)

    found = []
    if dtype is torch.float32 or not differentiable:
        found += found_on(devices, name, dtype, function, requires_grad=False)
    if differentiable:
        found += found_on(("cuda", "xpu"), name, dtype, gradients_of(function, values=True), requires_grad=True)

    assert found == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_no_entry_runs_on_mps_in_a_dtype_that_it_lacks(dtype: torch.dtype) -> None:
    """PyTorch's own tests expect as much of every entry (torch/testing/_internal/common_mps.py, `mps_ops_modifier`)."""

    def tried(name: str) -> Any:
        torch.manual_seed(0)
        sample = next(iter(ENTRIES[name].sample_inputs("mps", dtype)))
        return spoken(name)(sample.input, *sample.args, **sample.kwargs)

    names = [name for name, op in ENTRIES.items() if op.supports_dtype(dtype, "cpu")]
    with rehearse("mps"):
        found = {name: outcome(tried, Sample((name,), {}), "mps") for name in names}

    assert len(found) > 350
    assert {name: got for name, got in found.items() if got is not TypeError} == {}


@pytest.mark.parametrize("name", ["float_power", "double", "cdouble"])
def test_entry_whose_result_is_wide_is_refused_on_mps_alone(name: str) -> None:
    for device in DEVICES:
        sample = made_on(device, name)[-1]
        with rehearse(device):
            got = outcome(spoken(name), sample, device)

        assert (got is TypeError) is (device == "mps")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NOT_REPRODUCIBLE)
def test_driver_that_is_reproducible_agrees(name: str, device: str) -> None:
    samples = [sample for sample in made_on(device, name) if sample.kwargs["driver"] != "gelsy"]

    assert samples
    assert list(disagreements(ENTRIES[name].op, samples, device)) == []


@pytest.mark.parametrize("name", NOT_REPRODUCIBLE)
def test_plain_cpu_does_not_give_the_same_bits_twice(name: str) -> None:
    samples = [s for s in samples_of(name, torch.float32, "cpu", requires_grad=False) if s.kwargs["driver"] == "gelsy"]
    first = [outcome(ENTRIES[name].op, sample) for sample in samples]

    def again() -> bool:
        return same_values([outcome(ENTRIES[name].op, sample.on_the_cpu({})) for sample in samples], first)

    assert not all(again() for _ in range(50))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OF_THE_DEVICE)
def test_half_precision_is_summed_in_float32_on_a_device(name: str, dtype: torch.dtype) -> None:
    samples = made_on("cuda", name, dtype)
    nearest = Reference(ENTRIES[name].op, [Sample(*tree_map(wider, (s.args, s.kwargs))) for s in samples]).outcomes
    with rehearse("cuda"):
        got = [outcome(ENTRIES[name].op, sample, "cuda") for sample in samples]

    for ours, wanted in zip(got, nearest, strict=True):
        torch.testing.assert_close(ours.cpu(), wanted.to(dtype), rtol=0.02, atol=0.02)


def wider(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


@pytest.mark.parametrize("device", DEVICES)
def test_product_that_was_taken_by_name_before_is_what_any_mode_computes(device: str) -> None:
    original = ENTRIES["matmul"].op
    samples = made_on(device, "matmul")
    reference = Reference(listened_to(original), samples)

    assert list(disagreements(original, samples, device, reference=reference)) == []


def test_exceptions_are_few_and_known() -> None:
    assert len(EXCEPTIONS) <= 5
    assert set(EXCEPTIONS) | set(COSTLY) | set(UNDEFINED_VALUES) <= set(ENTRIES)


def test_database_has_the_entries_it_had() -> None:
    assert len(ENTRIES) > 600
    assert len(supported()) > 3500


@pytest.mark.skipif(torch_release() != (2, 13), reason="another release has other entries and kernels")
@pytest.mark.parametrize("name", ENTRIES)
def test_host_code_of_cuda_refused_the_dtypes_that_the_database_lists(name: str) -> None:
    """And no other that the CPU supports (tests/data/cuda_dtypes.json, of torch 2.13.0+cu130)."""
    op = ENTRIES[name]
    refused = {getattr(torch, dtype) for dtype in REFUSED.get(name, ())}
    listed = lacked_by_cuda(op, backward=True).intersection(ASKED) if "cuda" not in NOT_ON.get(name, ()) else set()

    assert refused & op.supported_dtypes("cpu") == listed


def test_database_lists_dtypes_that_cuda_lacks() -> None:
    assert torch.int64 in lacked_by_cuda(ENTRIES["matmul"])
    assert sum(len(lacked_by_cuda(op, backward=True).intersection(ASKED)) for op in op_db) > 130


# Twins: the comparison notices what it is there for


def test_wrong_value_is_noticed() -> None:
    samples = made_on("cuda", "sin")
    calls: list[Tensor] = []

    def one_bit_off(x: Tensor) -> Tensor:
        calls.append(x)
        out = torch.sin(x)
        return torch.nextafter(out, out + 1) if x.is_cuda else out

    found = list(disagreements(one_bit_off, samples, "cuda"))

    assert found
    assert all("other values" in sentence for sentence in found)


def test_result_that_strays_is_noticed() -> None:
    samples = made_on("mps", "sin")

    assert "on {'cpu'}" in next(disagreements(lambda x: torch.sin(x).cpu(), samples, "mps"))


def test_entry_that_should_be_refused_and_runs_is_noticed() -> None:
    samples = made_on("cuda", "sin")

    assert without_refusals(list(disagreements(torch.sin, samples, "cuda"))) == ["no sample is refused"]


def test_error_of_its_own_is_noticed() -> None:
    samples = made_on("xpu", "sin")

    def fails_on_the_device(x: Tensor) -> Tensor:
        if x.is_xpu:
            raise NotImplementedError
        return torch.sin(x)

    assert "NotImplementedError" in next(disagreements(fails_on_the_device, samples, "xpu"))


def test_storage_shared_by_arguments_is_shared_by_their_copies() -> None:
    with rehearse("cuda"):
        base = torch.arange(4.0, device="cuda")
        sample = Sample((base[:3], base[1:]), {})

    first, second = sample.on_the_cpu({}).args
    first[1] = 7

    assert second[0] == 7
    assert base[1] == 1


@pytest.mark.parametrize(
    ("got", "wanted", "equal"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.tensor([float("nan")]), torch.tensor([-float("nan")]), True),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False),
        (torch.tensor([1.0]), torch.tensor([[1.0]]), False),
        (torch.tensor(2), torch.tensor(2), True),
        ([torch.ones(1)], (torch.ones(1),), False),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), True),
        (1, 1.0, False),
        (float("nan"), float("nan"), True),
    ],
)
def test_comparison_is_by_bits(got: object, wanted: object, equal: bool) -> None:
    assert same_values(got, wanted) is equal
