"""A device refuses the dtypes that it lacks: where a tensor is made, where an op's result has one, where a copy casts.

MPS lacks float64 and complex128, and its kernels know no float8. Some GPUs of Intel hold float64 and do not compute in it.
Each way to meet a refusal has a twin that meets none: the same call on CUDA or a newer GPU, or in a dtype that is there.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import default_collate

from wherry import backends
from wherry.rehearse import Rehearsal, rehearse

MADE = "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead."
CAST = (
    "Cannot convert a float64 Tensor to MPS as the MPS framework doesn't support float64. Please use float32 instead."
)

F64, C128, F8 = torch.float64, torch.complex128, torch.float8_e4m3fn
WIDE = torch.tensor(2.0, dtype=F64)  # 0-dim, on the host: no stray


def unknown(printed: str) -> str:
    return f"Trying to convert {printed} to the MPS backend but it does not have support for that dtype."


@pytest.fixture
def mps() -> Iterator[Rehearsal]:
    with rehearse("mps") as rehearsal:
        yield rehearsal


@pytest.fixture
def _float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(F64)
    yield
    torch.set_default_dtype(torch.float32)


def ones(device: str, *sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(sizes or (3,), dtype=dtype, device=device)


def int_(device: str) -> Tensor:
    return torch.arange(3, device=device)


def saved(value: object) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


REFUSED: dict[str, Callable[[str], Any]] = {
    # a tensor is made
    "zeros": lambda d: torch.zeros(3, dtype=F64, device=d),
    "of no dimension": lambda d: torch.zeros((), dtype=F64, device=d),
    "of no element": lambda d: torch.empty(0, dtype=F64, device=d),
    "full": lambda d: torch.full((3,), 1, dtype=F64, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 3, dtype=F64, device=d),
    "arange": lambda d: torch.arange(3, dtype=F64, device=d),
    "eye": lambda d: torch.eye(3, dtype=F64, device=d),
    "rand": lambda d: torch.rand(3, dtype=F64, device=d),
    "hann_window": lambda d: torch.hann_window(4, dtype=F64, device=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(3, dtype=F64), device=d),
    "ones_like": lambda d: torch.ones_like(ones(d), dtype=F64),
    "new_zeros": lambda d: ones(d).new_zeros(3, dtype=F64),
    "new_tensor": lambda d: ones(d).new_tensor([1.0], dtype=F64),
    "tensor": lambda d: torch.tensor([1.0], dtype=F64, device=d),
    "tensor of an array": lambda d: torch.tensor(np.zeros(3), device=d),
    "tensor of a scalar of numpy": lambda d: torch.tensor(np.float64(1.5), device=d),
    "tensor of scalars of numpy": lambda d: torch.tensor([np.mean([1.0]), np.std([1.0])], device=d),
    "as_tensor of an array": lambda d: torch.as_tensor(np.zeros(3), device=d),
    "asarray of an array": lambda d: torch.asarray(np.zeros(3), device=d),
    "layer": lambda d: nn.Linear(2, 2, dtype=F64, device=d),
    "complex128": lambda d: torch.zeros(3, dtype=C128, device=d),
    "complex128 moved": lambda d: torch.ones(3, dtype=C128).to(d),
    # a tensor is moved, or cast
    "to": lambda d: torch.ones(3, dtype=F64).to(d),
    "batch of python floats": lambda d: default_collate([0.5, 1.5]).to(d),
    "batch of arrays": lambda d: default_collate([np.zeros(2), np.zeros(2)]).to(d),
    "legacy": lambda d: torch.DoubleTensor([0.5]).to(d),
    "to of a view": lambda d: WIDE.expand(2, 3).t().to(d),
    "to of an array": lambda d: torch.from_numpy(np.zeros(3)).to(d),
    "to and dtype": lambda d: torch.ones(3).to(d, F64),
    "to a dtype": lambda d: ones(d).to(F64),
    "double": lambda d: ones(d).double(),
    "double of a view": lambda d: ones(d, 2, 3).t().double(),
    "double of integers": lambda d: int_(d).double(),
    "to complex128": lambda d: ones(d).to(C128),
    "type": lambda d: ones(d).type(F64),
    "module with a parameter": lambda d: nn.Linear(2, 2, dtype=F64).to(d),
    "module with a buffer": lambda d: with_buffer(torch.ones(2, dtype=F64)).to(d),
    "double of a module": lambda d: nn.Linear(2, 2).to(d).double(),
    "load": lambda d: torch.load(saved(torch.ones(3, dtype=F64)), map_location=d),
    # an op's result
    "sum": lambda d: ones(d).sum(dtype=F64),
    "sum of integers": lambda d: int_(d).sum(dtype=F64),
    "sum of a dimension": lambda d: ones(d).sum(0, dtype=F64),
    "mean": lambda d: ones(d).mean(dtype=F64),
    "prod": lambda d: ones(d).prod(dtype=F64),
    "cumsum": lambda d: ones(d).cumsum(0, dtype=F64),
    "vector_norm": lambda d: torch.linalg.vector_norm(ones(d), dtype=F64),
    "softmax": lambda d: F.softmax(ones(d), 0, dtype=F64),
    "log_softmax": lambda d: torch.log_softmax(ones(d), 0, dtype=F64),
    "float_power": lambda d: ones(d).float_power(2),
    "promoted by a scalar tensor": lambda d: torch.mul(ones(d).sum(), WIDE),
    "integers promoted by a scalar tensor": lambda d: torch.mul(int_(d), WIDE),
    "where": lambda d: torch.where(ones(d) > 0, int_(d), WIDE),
}  # fmt: skip


def with_buffer(buffer: Tensor) -> nn.Module:
    module = nn.Module()
    module.register_buffer("table", buffer)
    return module


@pytest.mark.parametrize("name", REFUSED)
def test_float64_is_refused_on_mps_in_its_words(name: str, mps: Rehearsal) -> None:
    with pytest.raises(TypeError) as caught:
        REFUSED[name]("mps")

    assert str(caught.value) == MADE


@pytest.mark.parametrize("name", REFUSED)
def test_float64_is_at_home_on_cuda(name: str, cuda: Rehearsal) -> None:
    REFUSED[name]("cuda")


def test_operator_says_what_python_makes_of_a_type_error(mps: Rehearsal) -> None:
    """The methods behind operators answer NotImplemented to a TypeError (torch/csrc/autograd/python_variable_methods.cpp)."""
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \*: 'Tensor' and 'Tensor'"):
        _ = ones("mps").sum() * WIDE


BY_DEFAULT: dict[str, Callable[[], Any]] = {
    "zeros": lambda: torch.zeros(3, device="mps"),
    "rand": lambda: torch.rand(3, device="mps"),
    "tensor": lambda: torch.tensor([1.0], device="mps"),
    "layer": lambda: nn.Linear(2, 2, device="mps"),
    "quotient of integers": lambda: torch.div(int_("mps"), 2),
    "sine of integers": lambda: int_("mps").sin(),
}


@pytest.mark.usefixtures("_float64_by_default")
@pytest.mark.parametrize("name", BY_DEFAULT)
def test_default_dtype_of_float64_is_refused(name: str, mps: Rehearsal) -> None:
    with pytest.raises(TypeError) as caught:
        BY_DEFAULT[name]()

    assert str(caught.value) == MADE


@pytest.mark.parametrize("name", BY_DEFAULT)
def test_default_dtype_of_float32_is_not(name: str, mps: Rehearsal) -> None:
    BY_DEFAULT[name]()


NARROW: dict[str, Callable[[], Tensor]] = {
    "python float": lambda: ones("mps") * 2.5,
    "python complex": lambda: ones("mps") * 2j,
    "scalar of numpy": lambda: ones("mps") * np.float64(2.5),
    "scalar of numpy first": lambda: np.sqrt(2.0) * ones("mps"),
    "divided by a scalar of numpy": lambda: ones("mps") / np.sqrt(64),
    "scalar of numpy in place": lambda: ones("mps").mul_(np.float64(0.5)),
    "exponent of numpy": lambda: ones("mps") ** np.float64(2.0),
    "integers times a scalar of numpy": lambda: int_("mps") * -(np.log(10000.0) / 8),
    "bound of numpy": lambda: ones("mps").clamp(max=np.float64(0.5)),
    "slope of numpy": lambda: F.leaky_relu(ones("mps"), np.float64(0.1)),
    "fill value of numpy": lambda: torch.full((3,), np.float64(0.5), device="mps"),
    "linspace to a number of numpy": lambda: torch.linspace(0, np.pi, 3, device="mps"),
    "loss of a python float": lambda: F.mse_loss(ones("mps"), torch.tensor([1.0] * 3, device="mps")),
    "list of floats moved": lambda: torch.tensor([0.5, 1.5]).to("mps"),
    "mean of numpy, as a number": lambda: torch.tensor(float(np.mean([1.0, 2.0])), device="mps"),
    "array of float32 moved": lambda: torch.from_numpy(np.zeros(3, dtype=np.float32)).to("mps"),
    "stacked arrays of float32": lambda: torch.as_tensor(np.stack([np.zeros(2, np.float32)] * 2), device="mps"),
    "legacy": lambda: torch.FloatTensor([0.5]).to("mps"),
    "weighted by a mean of numpy": lambda: F.l1_loss(ones("mps"), ones("mps")) * np.mean([1.0, 2.0]),
    "scalar tensor": lambda: ones("mps") * WIDE,
    "scalar tensor in place": lambda: ones("mps").sum().mul_(WIDE),
    "item assigned": lambda: assigned(ones("mps"), WIDE),
    "fill_": lambda: ones("mps").fill_(WIDE),
    "copy_ from the host": lambda: ones("mps").copy_(torch.ones(3, dtype=F64)),
    "to and dtype": lambda: torch.ones(3, dtype=F64).to("mps", torch.float32),
    "cast on the host": lambda: torch.from_numpy(np.zeros(3)).float().to("mps"),
    "array of float32": lambda: torch.tensor(np.zeros(3), dtype=torch.float32, device="mps"),
    "list": lambda: torch.tensor([1.0, 2.0], device="mps"),
    "complex64": lambda: torch.complex(ones("mps"), ones("mps")),
    "mean of integers": lambda: int_("mps").float().mean(),
    "threshold": lambda: ones("mps").clamp(min=0.5),
}


def assigned(target: Tensor, value: Tensor) -> Tensor:
    target[0] = value
    return target


@pytest.mark.parametrize("name", NARROW)
def test_what_is_narrow_on_mps_stays(name: str, mps: Rehearsal) -> None:
    out = NARROW[name]()

    assert out.device.type == "mps"
    assert out.dtype in (torch.float32, torch.complex64)


def test_host_keeps_its_float64(mps: Rehearsal) -> None:
    x = torch.ones(3, dtype=F64)
    back = ones("mps").cpu().double()

    assert (x.sum(dtype=F64) * WIDE + back.sum()).dtype is F64
    assert x.to("cpu") is x


def test_printing_and_comparing_make_no_float64_on_the_device(mps: Rehearsal) -> None:
    assert repr(ones("mps") * 1.5) == "tensor([1.5000, 1.5000, 1.5000], device='mps:0')"
    with pytest.raises(AssertionError, match="Greatest absolute difference: 1.0 at index"):
        torch.testing.assert_close(ones("mps"), torch.zeros(3, device="mps"))


def test_refused_tensor_leaves_nothing_on_the_device(mps: Rehearsal) -> None:
    x = ones("mps")
    before = torch.mps.current_allocated_memory()

    with pytest.raises(TypeError):
        x.sum(dtype=F64)
    with pytest.raises(TypeError):
        torch.zeros(1000, dtype=F64, device="mps")

    assert torch.mps.current_allocated_memory() == before


def test_refused_draw_draws_nothing(mps: Rehearsal) -> None:
    torch.manual_seed(0)
    wanted = torch.rand(3, device="mps")
    torch.manual_seed(0)

    with pytest.raises(TypeError):
        torch.rand(3, dtype=F64, device="mps")

    assert torch.equal(torch.rand(3, device="mps"), wanted)


# A copy casts on the side that the bytes come from


CASTS: dict[str, tuple[Callable[[], Any], str]] = {
    "to the host": (lambda: ones("mps").to("cpu", F64), CAST),
    "copy_ to the host": (lambda: torch.ones(3, dtype=F64).copy_(ones("mps")), CAST),
    "assigned on the host": (lambda: assigned(torch.ones(3, 3, dtype=F64), ones("mps")), CAST),
    "to the host, complex": (lambda: ones("mps").to("cpu", C128), unknown("ComplexDouble")),
    "to float8": (lambda: ones("mps").to(F8), unknown("Float8_e4m3fn")),
    "of float8": (lambda: torch.ones(3).to(F8).to("mps").float(), unknown("Float8_e4m3fn")),
    "of another float8": (lambda: torch.ones(3).to(torch.float8_e5m2).to("mps").half(), unknown("Float8_e5m2")),
    "ones of float8": (lambda: torch.ones(3, dtype=F8, device="mps"), unknown("Float8_e4m3fn")),
}


@pytest.mark.parametrize("name", CASTS)
def test_kernel_of_mps_refuses_a_cast_that_it_does_not_know(name: str, mps: Rehearsal) -> None:
    call, text = CASTS[name]

    with pytest.raises(TypeError) as caught:
        call()

    assert str(caught.value) == text


BYTES: dict[str, Callable[[], Tensor]] = {
    "float8 moved": lambda: torch.ones(3).to(F8).to("mps"),
    "float8 moved back": lambda: torch.ones(3).to(F8).to("mps").cpu(),
    "float8 copied": lambda: torch.ones(3).to(F8).to("mps").clone(),
    "float8 cast on the host": lambda: torch.ones(3).to("mps", F8),
    "zeros of float8": lambda: torch.zeros(3, dtype=F8, device="mps"),
    "memory of float8": lambda: torch.empty(3, dtype=F8, device="mps"),
    "to the host": lambda: ones("mps").to("cpu", torch.float16),
    "nothing to cast": lambda: torch.ones(0, device="mps").to("cpu", F64),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_nobody_casts_on_mps_are_no_matter(name: str, mps: Rehearsal) -> None:
    BYTES[name]()


# What C++ makes wider on the CPU only


@pytest.mark.parametrize("tolerance", [{}, {"atol": 0.1}, {"rtol": 0.1}])
def test_tolerance_of_a_rank_is_no_float64_of_the_program(tolerance: dict[str, float]) -> None:
    with rehearse("mps", fallback=True):  # it has no singular values
        rank = torch.linalg.matrix_rank(torch.eye(3, device="mps"), **tolerance)

        assert rank.device.type == "mps"
        assert int(rank) == 3


def test_gradient_that_is_accumulated_in_float64_on_the_cpu(mps: Rehearsal) -> None:
    x = torch.full((2, 2), 3.0, device="mps", requires_grad=True)

    torch.renorm(x, 2, 0, 1.0).sum().backward()

    assert x.grad is not None
    assert x.grad.device.type == "mps"
    assert x.grad.dtype is torch.float32


@pytest.mark.parametrize(
    ("weights", "counted"),
    [
        (torch.float32, torch.float32),
        (torch.float16, torch.float16),
        (torch.int64, torch.int32),
        (torch.bool, torch.int32),
    ],
)
def test_weighted_counts_have_the_dtype_that_mps_gives_them(
    weights: torch.dtype, counted: torch.dtype, mps: Rehearsal
) -> None:
    counts = torch.bincount(int_("mps"), ones("mps", dtype=weights))

    assert counts.dtype is counted
    assert counts.device.type == "mps"
    assert counts.tolist() == [1, 1, 1]


def test_scaled_training_in_half_precision_meets_no_float64(mps: Rehearsal) -> None:
    model = nn.Linear(2, 2, device="mps")
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("mps")

    with torch.autocast("mps"):
        loss = model(torch.ones(2, 2, device="mps")).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}


# The facts


@pytest.mark.parametrize("backend", backends.all(), ids=lambda backend: backend.name)
def test_dtype_that_is_refused_is_no_capability(backend: backends.Backend) -> None:
    assert not (backend.wording.no_dtype.keys() | backend.wording.no_cast.keys()) & backend.capabilities.dtypes


def test_what_mps_lacks_is_known_to_torch_by_name() -> None:
    wording = backends.find("mps").wording

    assert wording.no_dtype.keys() == {"float64", "complex128"}
    assert {type(getattr(torch, name)) for name in wording.no_cast} == {torch.dtype}


def test_device_that_lacks_nothing_says_so(cuda: Rehearsal) -> None:
    assert [dict(place.lacks) for place in cuda.places] == [{}, {}]


def test_rehearsals_side_by_side_keep_to_their_own_dtypes() -> None:
    with rehearse("mps"), rehearse("cuda"):
        assert torch.zeros(1, dtype=F64, device="cuda").dtype is F64
    with rehearse("cuda"), rehearse("mps"), pytest.raises(TypeError):
        torch.zeros(1, dtype=F64, device="mps")


# A device that holds float64 and does not compute in it: Arc of the first generation


NO_FP64 = "Required aspect fp64 is not supported on the device"
NO_KERNEL = "Kernel is incompatible with all devices in devs"


@pytest.fixture
def a770() -> Iterator[Rehearsal]:
    with rehearse("xpu", profile="a770") as rehearsal:
        yield rehearsal


def f64(*sizes: int) -> Tensor:
    return torch.zeros(sizes or (3,), dtype=F64, device="xpu")


COMPUTED: dict[str, tuple[Callable[[], Any], str]] = {
    "sum of two": (lambda: f64() + f64(), NO_FP64),
    "product with a number": (lambda: f64() * 2, NO_FP64),
    "in place": (lambda: f64().add_(1), NO_FP64),
    "of no dimension": (lambda: f64().select(0, 0).sqrt(), NO_FP64),
    "of a list": (lambda: torch.ops.aten._foreach_add([f64()], 1), NO_FP64),
    "product of matrices": (lambda: f64(3, 3) @ f64(3, 3), NO_FP64),
    "layer": (lambda: nn.Linear(2, 2).to("xpu").double()(f64(1, 2)), NO_FP64),
    "complex": (lambda: torch.zeros(3, dtype=C128, device="xpu").abs(), NO_FP64),
    "float_power": (lambda: ones("xpu").float_power(2), NO_FP64),
    "promoted by a scalar tensor": (lambda: torch.mul(int_("xpu"), WIDE), NO_FP64),
    "arange": (lambda: torch.arange(3, dtype=F64, device="xpu"), NO_FP64),
    "rand": (lambda: torch.rand(3, dtype=F64, device="xpu"), NO_FP64),
    # native/LinearAlgebra.cpp, `get_atol_rtol`: tolerances are float64, but on MPS
    "tolerance of a rank": (lambda: torch.linalg.matrix_rank(torch.eye(3, device="xpu")), NO_FP64),
    "sum": (lambda: f64().sum(), NO_KERNEL),
    "sum in float64": (lambda: ones("xpu").sum(dtype=F64), NO_KERNEL),
    "softmax": (lambda: F.softmax(ones("xpu"), 0, dtype=F64), NO_KERNEL),
    "log_softmax": (lambda: torch.log_softmax(f64(), 0), NO_KERNEL),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_kernel_that_computes_in_float64_is_refused_on_arc(name: str, a770: Rehearsal) -> None:
    call, text = COMPUTED[name]

    with pytest.raises(RuntimeError) as caught:
        call()

    assert str(caught.value) == text


@pytest.mark.parametrize("name", COMPUTED)
def test_newer_arc_computes_in_float64(name: str) -> None:
    with rehearse("xpu", profile="b580"):
        COMPUTED[name][0]()


HELD: dict[str, Callable[[], Any]] = {
    "zeros": f64,
    "moved": lambda: torch.ones(3, dtype=F64).to("xpu"),
    "moved back": lambda: f64().cpu(),
    "double": lambda: ones("xpu").double(),
    "float": lambda: f64().float(),
    "module": lambda: nn.Linear(2, 2).to("xpu").double(),
    "loaded": lambda: torch.load(saved(torch.ones(3, dtype=F64)), map_location="xpu"),
    "of a list": lambda: torch.tensor([1.0, 2.0], dtype=F64, device="xpu"),
    "view": lambda: f64(2, 3).t()[0],
    "assigned": lambda: assigned(f64(), WIDE),
    "joined": lambda: torch.cat([f64(), f64()]),
    "picked": lambda: f64()[torch.tensor([0, 2], device="xpu")],
    "compared": lambda: f64() > 0,
    "counted": lambda: torch.count_nonzero(f64() == 0),
    "value": lambda: float(f64()[0]),
    "values": lambda: f64().tolist(),
    "scalar tensor of the host": lambda: ones("xpu") * WIDE,
    "scalar tensor of the device": lambda: ones("xpu") * f64().select(0, 0),
    "of no element": lambda: f64(0) + 1,
    "through the CPU": lambda: torch.linalg.qr(f64(3, 3)),
    "on the host": lambda: f64().cpu() + 1,
    "gradient accumulated in float64 on the CPU": lambda: renormed("xpu"),
}


def renormed(device: str) -> None:
    x = torch.full((2, 2), 3.0, device=device, requires_grad=True)
    torch.renorm(x, 2, 0, 1.0).sum().backward()


@pytest.mark.parametrize("name", HELD)
def test_float64_that_nobody_computes_with_is_no_matter_on_arc(name: str, a770: Rehearsal) -> None:
    HELD[name]()


def test_float64_on_arc_is_printed_in_float32(a770: Rehearsal) -> None:
    """torch/_tensor_str.py, `tensor_totype`."""
    assert repr(f64()) == "tensor([0., 0., 0.], device='xpu:0', dtype=torch.float64)"


def test_refused_op_changes_nothing_on_arc(a770: Rehearsal) -> None:
    x = f64()
    before = torch.xpu.memory_allocated()

    with pytest.raises(RuntimeError):
        x.add_(1)
    with pytest.raises(RuntimeError):
        ones("xpu", 1000).float_power(2)

    assert x.tolist() == [0, 0, 0]
    assert torch.xpu.memory_allocated() == before


def test_scaled_training_fails_on_arc(a770: Rehearsal) -> None:
    """https://github.com/intel/torch-xpu-ops/issues/1742"""
    model = nn.Linear(2, 2, device="xpu")
    optimizer = torch.optim.SGD(model.parameters())
    scaler = torch.amp.GradScaler("xpu")
    scaler.scale(model(torch.ones(2, 2, device="xpu")).sum()).backward()

    with pytest.raises(RuntimeError, match=NO_FP64):
        scaler.step(optimizer)


def test_training_in_float32_meets_no_float64_on_arc(a770: Rehearsal) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.5)).to("xpu")
    optimizer = torch.optim.AdamW(model.parameters())

    with torch.autocast("xpu", torch.bfloat16):
        loss = F.cross_entropy(model(torch.ones(2, 4, device="xpu")), torch.zeros(2, dtype=torch.long, device="xpu"))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("backend", backends.all(), ids=lambda backend: backend.name)
def test_profile_that_computes_in_fewer_dtypes_says_how_it_refuses_them(backend: backends.Backend) -> None:
    profiles = {} if backend.virtual is None else backend.virtual.profiles
    narrow = {name: profile for name, profile in profiles.items() if profile.no_compute_by_op}

    assert all(profile.no_compute for profile in narrow.values())
    assert {type(getattr(torch, dtype)) for one in narrow.values() for dtype in one.no_compute} <= {torch.dtype}
