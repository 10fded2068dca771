"""How a tensor comes to a device: factories, `.to` in all its forms, constructors, the default device."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, empty, ones, randn, tensor, zeros  # taken before any rehearsal begins, as programs do

from wherry.rehearse import Rehearsal, rehearse

# Sparse constructors say once a process that their invariants go unchecked.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def is_on(x: Tensor, device: str) -> bool:
    """Whether every way of asking says so."""
    kind = torch.device(device).type
    return (
        str(x.device) == device
        and (x.is_cpu, x.is_cuda, x.is_mps, x.is_xpu) == tuple(kind == k for k in ("cpu", "cuda", "mps", "xpu"))
        and x.get_device() == (-1 if kind == "cpu" else x.device.index)
        and x.untyped_storage().device == x.device
    )


# Movement

TO: dict[str, Callable[[Tensor, str], Tensor]] = {
    "text": lambda x, d: x.to(d),
    "text without an index": lambda x, d: x.to(d.partition(":")[0]),
    "torch.device": lambda x, d: x.to(torch.device(d)),
    "keyword": lambda x, d: x.to(device=d),
    "index": lambda x, d: x.to(0),
    "keyword index": lambda x, d: x.to(device=0),
    "and dtype": lambda x, d: x.to(d, torch.float16),
    "and dtype by keyword": lambda x, d: x.to(d, dtype=torch.float16),
    "dtype and device by keyword": lambda x, d: x.to(dtype=torch.float16, device=d),
    "and no dtype": lambda x, d: x.to(d, None),
    "non_blocking": lambda x, d: x.to(d, non_blocking=True),
    "positional non_blocking": lambda x, d: x.to(d, torch.float32, True),
    "positional copy": lambda x, d: x.to(d, torch.float32, False, True),
    "copy": lambda x, d: x.to(d, copy=True),
    "memory format": lambda x, d: x.to(d, memory_format=torch.contiguous_format),
    "other": lambda x, d: x.to(torch.zeros(1, device=d)),
    "other by keyword": lambda x, d: x.to(other=torch.zeros(1, device=d)),
    "other of another dtype": lambda x, d: x.to(torch.zeros(1, device=d, dtype=torch.float16)),
    "type_as": lambda x, d: x.type_as(torch.zeros(1, device=d)),
    "data": lambda x, d: x.data.to(d),
    "detach": lambda x, d: x.detach().to(d),
    "of a view": lambda x, d: x[1:].to(d),
    "of a transposed": lambda x, d: x.t().to(d),
    "parameter": lambda x, d: torch.nn.Parameter(x).to(d),
    "torch.Tensor.to": Tensor.to,
    "method": lambda x, d: getattr(x, {"mps": "to"}.get(d.partition(":")[0], d.partition(":")[0]))(d),
}


@pytest.mark.parametrize("form", TO)
def test_to_brings_a_tensor_to_the_device(form: str, device: str) -> None:
    x = torch.arange(6.0).reshape(2, 3)

    assert is_on(TO[form](x, device), device)
    assert is_on(x, "cpu")


@pytest.mark.parametrize("form", TO)
def test_to_brings_the_values_along(form: str, device: str) -> None:
    x = torch.arange(6.0).reshape(2, 3)

    moved = TO[form](x, device)

    assert torch.equal(moved.cpu().float().flatten().sort().values, x.flatten()[-moved.numel() :])


BACK: dict[str, Callable[[Tensor], Tensor]] = {
    "cpu": lambda x: x.cpu(),
    "to text": lambda x: x.to("cpu"),
    "to torch.device": lambda x: x.to(torch.device("cpu")),
    "to with an index": lambda x: x.to("cpu:0"),
    "to and dtype": lambda x: x.to("cpu", torch.float16),
    "other": lambda x: x.to(torch.zeros(1)),
    "type_as": lambda x: x.type_as(torch.zeros(1)),
    "type": lambda x: x.type(torch.FloatTensor),
    "detach": lambda x: x.detach().cpu(),
    "memory format": lambda x: x.cpu(memory_format=torch.contiguous_format),
}


@pytest.mark.parametrize("form", BACK)
def test_tensor_comes_back_to_the_host(form: str, device: str) -> None:
    x = torch.arange(3.0, device=device)

    back = BACK[form](x)

    assert back.device.type == "cpu"
    assert back.numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "form", ["text", "torch.device", "keyword", "index", "other", "type_as", "non_blocking", "and no dtype"]
)
def test_moving_to_where_it_is_gives_the_tensor_itself(form: str, device: str) -> None:
    x = torch.arange(6.0, device=device).reshape(2, 3)

    assert TO[form](x, device) is x


def test_cpu_of_a_host_tensor_is_the_tensor_itself(device: str) -> None:
    x = torch.arange(3.0)

    assert x.cpu() is x
    assert x.to("cpu") is x


def test_copy_makes_a_new_tensor_where_it_is(device: str) -> None:
    x = torch.zeros(3, device=device)

    twin = x.to(device, copy=True)
    twin += 1

    assert is_on(twin, device)
    assert x.tolist() == [0, 0, 0]


def test_moved_tensor_has_memory_of_its_own(device: str) -> None:
    x = torch.zeros(3)

    moved = x.to(device)
    moved += 1

    assert x.tolist() == [0, 0, 0]
    assert moved.untyped_storage()._cdata != x.untyped_storage()._cdata


def test_dtype_alone_keeps_the_device(device: str) -> None:
    x = torch.zeros(3, device=device)

    assert [y.device.type for y in (x.to(torch.float16), x.half(), x.long(), x.bool(), x.type(torch.int32))] == [
        torch.device(device).type
    ] * 5


def test_to_keeps_the_memory_format(device: str) -> None:
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)

    assert x.to(device).stride() == x.stride()


def test_movement_between_two_devices(pair: tuple[str, str]) -> None:
    first, second = pair
    x = torch.arange(3.0, device=first)

    assert is_on(x.to(second), second)
    assert is_on(x.to(second).to(first), first)
    assert x.to(second).tolist() == [0, 1, 2]


def test_index_of_a_method_chooses_the_device() -> None:
    with rehearse("cuda", count=2):
        assert is_on(torch.zeros(1).cuda(1), "cuda:1")
        assert is_on(torch.zeros(1).cuda("cuda:1"), "cuda:1")
        assert is_on(torch.zeros(1).cuda(device=torch.device("cuda:1")), "cuda:1")
        assert is_on(torch.zeros(1).cuda(non_blocking=True), "cuda:0")
        with torch.cuda.device(1):
            assert is_on(torch.zeros(1).cuda(), "cuda:1")
            assert is_on(torch.zeros(1, device="cuda"), "cuda:1")


def test_tensor_type_is_kept(device: str) -> None:
    assert type(torch.zeros(1).to(device)) is Tensor
    assert type(torch.nn.Parameter(torch.zeros(1)).to(device)) is Tensor
    assert type(torch.zeros(1, device=device) + 1) is Tensor


def test_views_reside_with_their_base(device: str) -> None:
    base = torch.zeros(4, 4, device=device)
    views = [
        base[0],
        base.t(),
        base.view(16),
        base.data,
        base.detach(),
        base[:, 1:3],
        base.unsqueeze(0),
        base.expand(2, 4, 4),
    ]

    assert all(is_on(view, device) for view in views)
    assert all(is_on(part, device) for part in base.unbind() + base.split(2) + base.chunk(2))


def test_data_that_is_assigned_decides_where_a_tensor_is(device: str) -> None:
    p = torch.nn.Parameter(torch.zeros(3))

    p.data = p.data.to(device)

    assert is_on(p, device)
    assert is_on(p.data, device)


# Factories

FACTORIES: dict[str, Callable[..., Tensor]] = {
    "zeros": lambda **k: torch.zeros(2, **k),
    "ones": lambda **k: torch.ones(2, **k),
    "empty": lambda **k: torch.empty(2, **k),
    "full": lambda **k: torch.full((2,), 1.0, **k),
    "rand": lambda **k: torch.rand(2, **k),
    "randn": lambda **k: torch.randn(2, **k),
    "randint": lambda **k: torch.randint(3, (2,), **k),
    "randperm": lambda **k: torch.randperm(4, **k),
    "normal": lambda **k: torch.normal(0.0, 1.0, (2,), **k),
    "arange": lambda **k: torch.arange(3, **k),
    "range": lambda **k: torch.arange(0, 3, 1, **k),
    "linspace": lambda **k: torch.linspace(0, 1, 3, **k),
    "logspace": lambda **k: torch.logspace(0, 1, 3, **k),
    "eye": lambda **k: torch.eye(2, **k),
    "empty_strided": lambda **k: torch.empty_strided((2, 2), (2, 1), **k),
    "empty_permuted": lambda **k: torch.empty_permuted((2, 2), (1, 0), **k),
    "tril_indices": lambda **k: torch.tril_indices(2, 2, **k),
    "triu_indices": lambda **k: torch.triu_indices(2, 2, **k),
    "hann_window": lambda **k: torch.hann_window(4, **k),
    "hamming_window": lambda **k: torch.hamming_window(4, **k),
    "blackman_window": lambda **k: torch.blackman_window(4, **k),
    "bartlett_window": lambda **k: torch.bartlett_window(4, **k),
    "kaiser_window": lambda **k: torch.kaiser_window(4, **k),
    "signal.windows.gaussian": lambda **k: torch.signal.windows.gaussian(4, **k),
    "fft.fftfreq": lambda **k: torch.fft.fftfreq(4, **k),
    "fft.rfftfreq": lambda **k: torch.fft.rfftfreq(4, **k),
    "complex zeros": lambda **k: torch.zeros(2, dtype=torch.complex64, **k),
    "tensor": lambda **k: torch.tensor([1.0, 2.0], **k),
    "tensor of a scalar": lambda **k: torch.tensor(1, **k),
    "tensor of an array": lambda **k: torch.tensor(np.zeros(2, dtype=np.float32), **k),
    "as_tensor": lambda **k: torch.as_tensor([1.0, 2.0], **k),
    "as_tensor of an array": lambda **k: torch.as_tensor(np.zeros(2, dtype=np.float32), **k),
    "asarray": lambda **k: torch.asarray([1.0, 2.0], **k),
    "scalar_tensor": lambda **k: torch.scalar_tensor(1.0, **k),
    "sparse_coo_tensor": lambda **k: torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), **k).to_dense(),
    "from torch import zeros": lambda **k: zeros(2, **k),
    "from torch import ones": lambda **k: ones(2, **k),
    "from torch import empty": lambda **k: empty(2, **k),
    "from torch import randn": lambda **k: randn(2, **k),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("asked", [str, torch.device], ids=["text", "torch.device"])
def test_factory_makes_its_tensor_on_the_device(name: str, asked: Callable[[str], Any], device: str) -> None:
    assert is_on(FACTORIES[name](device=asked(device)), device)


@pytest.mark.parametrize("name", FACTORIES)
def test_factory_without_a_device_makes_its_tensor_on_the_host(name: str, device: str) -> None:
    made = FACTORIES[name]()

    assert is_on(made, "cpu")
    if made.dim():
        with pytest.raises(RuntimeError, match="same device|two devices"):
            made + torch.zeros(made.shape, device=device)


NOT_BY_DEFAULT = {"normal"}
"""Factories that look at no default device (torch.utils._device._device_constructors has no torch.normal)."""


@pytest.mark.parametrize("name", sorted(FACTORIES.keys() - NOT_BY_DEFAULT))
def test_factory_obeys_the_default_device(name: str, device: str) -> None:
    torch.set_default_device(device)
    try:
        made = FACTORIES[name]()
        stays = FACTORIES[name](device="cpu")
    finally:
        torch.set_default_device(None)

    assert is_on(made, device)
    assert is_on(stays, "cpu")


@pytest.mark.parametrize("name", sorted(FACTORIES.keys() - NOT_BY_DEFAULT))
def test_factory_obeys_a_device_in_a_with_block(name: str, device: str) -> None:
    with torch.device(device):
        made = FACTORIES[name]()

    assert is_on(made, device)
    assert is_on(FACTORIES[name](), "cpu")


@pytest.mark.parametrize("name", ["zeros", "rand", "tensor", "arange", "from torch import zeros"])
def test_factory_makes_leaves_that_require_grad(name: str, device: str) -> None:
    made = FACTORIES["zeros"](device=device, requires_grad=True)

    assert made.is_leaf
    assert made.requires_grad


@pytest.mark.parametrize("captured", [zeros, ones, empty, randn], ids=lambda f: f.__name__)
def test_stray_of_a_captured_factory_is_caught(captured: Callable[[int], Tensor], device: str) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.zeros(2, device=device) + captured(2)


def test_factory_without_a_default_ignores_the_default_device(device: str) -> None:
    with torch.device(device):
        assert is_on(torch.normal(0.0, 1.0, (2,)), "cpu")


def test_captured_constructor_obeys_its_device(device: str) -> None:
    assert is_on(tensor([1.0], device=device), device)


LIKE: dict[str, Callable[..., Tensor]] = {
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "empty_like": torch.empty_like,
    "full_like": lambda x, **k: torch.full_like(x, 1.0, **k),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x, **k: torch.randint_like(x, 3, **k),
    "new_zeros": lambda x, **k: x.new_zeros(2, **k),
    "new_ones": lambda x, **k: x.new_ones(2, **k),
    "new_empty": lambda x, **k: x.new_empty(2, **k),
    "new_full": lambda x, **k: x.new_full((2,), 1.0, **k),
    "new_tensor": lambda x, **k: x.new_tensor([1.0], **k),
    "new_empty_strided": lambda x, **k: x.new_empty_strided((2,), (1,), **k),
}


@pytest.mark.parametrize("name", LIKE)
def test_like_follows_its_tensor(name: str, device: str) -> None:
    assert is_on(LIKE[name](torch.zeros(2, device=device)), device)
    assert is_on(LIKE[name](torch.zeros(2)), "cpu")


@pytest.mark.parametrize("name", LIKE)
def test_like_goes_where_it_is_told(name: str, device: str) -> None:
    assert is_on(LIKE[name](torch.zeros(2, device=device), device="cpu"), "cpu")
    assert is_on(LIKE[name](torch.zeros(2), device=device), device)


@pytest.mark.parametrize("name", LIKE)
def test_like_follows_its_tensor_whatever_the_default_device(name: str, device: str) -> None:
    with torch.device(device):
        made = LIKE[name](torch.zeros(2, device="cpu"))

    assert is_on(made, "cpu")


LEGACY: dict[str, Callable[[], Tensor]] = {
    "torch.Tensor(2, 3)": lambda: torch.Tensor(2, 3),
    "torch.Tensor([1, 2])": lambda: torch.Tensor([1, 2]),
    "torch.FloatTensor(2)": lambda: torch.FloatTensor(2),
    "torch.FloatTensor([1.])": lambda: torch.FloatTensor([1.0]),
    "torch.LongTensor([1])": lambda: torch.LongTensor([1]),
    "torch.BoolTensor([True])": lambda: torch.BoolTensor([True]),
    "from_numpy": lambda: torch.from_numpy(np.zeros(2)),
    "frombuffer": lambda: torch.frombuffer(bytearray(8), dtype=torch.float32),
    "from_dlpack": lambda: torch.from_dlpack(np.zeros(2)),
}


@pytest.mark.parametrize("name", LEGACY)
def test_legacy_constructor_makes_its_tensor_on_the_host(name: str, device: str) -> None:
    made = LEGACY[name]()

    assert is_on(made, "cpu")
    with pytest.raises(RuntimeError, match="same device"):
        made + torch.zeros(made.shape, device=device)


@pytest.mark.parametrize(
    "make", [lambda x: x.new(2), lambda x: x.new([1.0]), lambda x: x.new()], ids=["sizes", "data", "none"]
)
def test_new_follows_its_tensor(make: Callable[[Tensor], Tensor], device: str) -> None:
    assert is_on(make(torch.zeros(2, device=device)), device)
    assert is_on(make(torch.zeros(2)), "cpu")


def test_array_shared_with_the_host_is_copied_by_a_movement(device: str) -> None:
    array = np.zeros(3, dtype=np.float32)
    shared = torch.from_numpy(array)

    moved = shared.to(device)
    array += 1

    assert shared.tolist() == [1, 1, 1]
    assert moved.tolist() == [0, 0, 0]


def test_tensor_of_a_tensor_stays_where_that_is(device: str) -> None:
    x = torch.zeros(2, device=device)

    with pytest.warns(UserWarning, match="copy construct"):
        assert is_on(torch.tensor(x), device)
    assert torch.as_tensor(x) is x
    assert torch.asarray(x) is x
    assert is_on(torch.as_tensor(x, device="cpu"), "cpu")
    assert is_on(torch.asarray(x, device="cpu"), "cpu")


def test_tensor_of_device_scalars_is_made_on_the_host(device: str) -> None:
    parts = [torch.tensor(1.0, device=device), torch.tensor(2.0, device=device)]

    made = torch.tensor(parts)

    assert is_on(made, "cpu")
    assert made.tolist() == [1, 2]


@given(
    shape=st.lists(st.integers(0, 3), max_size=3),
    dtype=st.sampled_from([torch.float32, torch.int64, torch.bool, torch.float16]),
)
def test_any_tensor_survives_the_way_there_and_back(shape: list[int], dtype: torch.dtype) -> None:
    with rehearse("mps"):
        x = torch.ones(shape).cumsum(0).to(dtype) if shape else torch.ones((), dtype=dtype)
        there = x.to("mps")
        back = there.cpu()

    assert (there.shape, there.dtype, there.stride()) == (x.shape, x.dtype, x.stride())
    assert torch.equal(back, x)


# To the host's other libraries

REFUSED_ON_A_DEVICE: dict[str, Callable[[Tensor], object]] = {
    "numpy()": lambda x: x.numpy(),
    "np.asarray": np.asarray,
    "np.array": lambda x: np.array(x, copy=None),
    "np.stack": lambda x: np.stack([x, x]),
    "__array__": lambda x: x.__array__(),
    "from_numpy of it": lambda x: torch.from_numpy(x.numpy()),
}


@pytest.mark.parametrize("name", REFUSED_ON_A_DEVICE)
def test_device_tensor_does_not_become_an_array(name: str, device: str) -> None:
    with pytest.raises(TypeError) as caught:
        REFUSED_ON_A_DEVICE[name](torch.zeros(2, device=device))

    assert str(caught.value) == (
        f"can't convert {device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
    )


@pytest.mark.parametrize("name", REFUSED_ON_A_DEVICE)
def test_host_tensor_becomes_an_array(name: str, device: str) -> None:
    REFUSED_ON_A_DEVICE[name](torch.zeros(2))


def test_numpy_by_force_copies(device: str) -> None:
    assert torch.arange(3.0, device=device).numpy(force=True).tolist() == [0, 1, 2]


def test_values_are_read_without_moving(device: str) -> None:
    x = torch.arange(3.0, device=device)

    assert x.tolist() == [0, 1, 2]
    assert x[1].item() == 1.0
    assert (float(x[2]), int(x[2]), bool(x[2])) == (2.0, 2, True)
    assert f"{x[1]:.1f}" == "1.0"
    assert [y.item() for y in x] == [0, 1, 2]
    assert range(5)[x[1].long()] == 1


def test_repr_names_the_device(device: str) -> None:
    x = torch.arange(2.0, device=device)

    assert repr(x) == f"tensor([0., 1.], device='{device}')"
    assert repr(x.cpu()) == "tensor([0., 1.])"
    assert (
        repr(torch.nn.Parameter(x)) == f"Parameter containing:\ntensor([0., 1.], device='{device}', requires_grad=True)"
    )
    assert str(torch.zeros(0, device=device)) == f"tensor([], device='{device}')"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cuda", "torch.cuda.FloatTensor"),
        ("rocm", "torch.cuda.FloatTensor"),
        ("mps", "torch.mps.FloatTensor"),
        ("xpu", "torch.xpu.FloatTensor"),
    ],
)
def test_type_names_the_device(name: str, text: str) -> None:
    with rehearse(name) as rehearsal:
        assert torch.zeros(1, device=rehearsal.device).type() == text
        assert torch.zeros(1).type() == "torch.FloatTensor"


def test_type_text_moves() -> None:
    with rehearse("cuda"):
        assert is_on(torch.zeros(1).type("torch.cuda.HalfTensor"), "cuda:0")
        assert torch.zeros(1).type("torch.cuda.HalfTensor").dtype is torch.float16
        assert is_on(torch.zeros(1).cuda().type("torch.FloatTensor"), "cpu")
        assert is_on(torch.zeros(1).type(torch.cuda.FloatTensor), "cuda:0")


# Copies of objects


def test_deepcopy_stays_on_the_device(device: str) -> None:
    x = torch.arange(3.0, device=device)
    twin = copy.deepcopy(x)
    twin += 1

    assert is_on(twin, device)
    assert x.tolist() == [0, 1, 2]


def test_copy_shares_the_memory(device: str) -> None:
    x = torch.zeros(3, device=device)
    alias = copy.copy(x)
    alias += 1

    assert is_on(alias, device)
    assert x.tolist() == [1, 1, 1]


def test_clone_stays_on_the_device(device: str) -> None:
    assert is_on(torch.zeros(3, device=device).clone(), device)


def test_pickle_restores_the_device(device: str) -> None:
    x = torch.arange(3.0, device=device)

    back = pickle.loads(pickle.dumps(x))

    assert is_on(back, device)
    assert back.tolist() == [0, 1, 2]


def saved(value: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


LOAD: dict[str, tuple[Any, str]] = {
    "nothing": (None, "device"),
    "cpu": ("cpu", "cpu"),
    "torch.device cpu": (torch.device("cpu"), "cpu"),
    "function that keeps": (lambda storage, location: storage, "cpu"),
    "function to the host": (lambda storage, location: storage.cpu(), "cpu"),
}


@pytest.mark.parametrize("case", LOAD)
def test_load_puts_tensors_where_map_location_says(case: str, device: str) -> None:
    map_location, where = LOAD[case]
    file = saved({"x": torch.arange(3.0, device=device)})

    back = torch.load(file, map_location=map_location)["x"]

    assert is_on(back, device if where == "device" else where)
    assert back.tolist() == [0, 1, 2]


@pytest.mark.parametrize("form", [str, torch.device, lambda d: {"cpu": d}], ids=["text", "torch.device", "dict"])
def test_load_brings_a_host_checkpoint_to_the_device(form: Callable[[str], Any], device: str) -> None:
    file = saved({"x": torch.arange(3.0)})

    back = torch.load(file, map_location=form(device))["x"]

    assert is_on(back, device)
    assert back.tolist() == [0, 1, 2]


def test_load_sends_a_checkpoint_to_the_other_device() -> None:
    with rehearse("cuda", count=2):
        file = saved(torch.arange(3.0, device="cuda:0"))

        assert is_on(torch.load(file, map_location={"cuda:0": "cuda:1"}), "cuda:1")


def test_storage_shared_when_saved_is_shared_when_loaded(device: str) -> None:
    x = torch.zeros(4, device=device)

    first, second = torch.load(saved((x[:2], x[2:])))
    first.untyped_storage().fill_(0)

    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
    assert is_on(first, device)
    assert is_on(second, device)


def test_checkpoint_of_one_machine_is_refused_by_another_without_map_location() -> None:
    with rehearse("cuda"):
        file = saved(torch.zeros(2, device="cuda"))

    with rehearse("cpu"), pytest.raises(RuntimeError, match="deserialize object on a CUDA device"):
        torch.load(file)


def test_checkpoint_of_two_devices_is_refused_where_there_is_one() -> None:
    with rehearse("cuda", count=2):
        file = saved(torch.zeros(2, device="cuda:1"))

    with rehearse("cuda"), pytest.raises(RuntimeError, match="device_count"):
        torch.load(file)


def test_checkpoint_of_a_rehearsal_is_an_ordinary_one() -> None:
    with rehearse("cuda"):
        file = saved(torch.arange(3.0, device="cuda"))

    assert torch.load(file, map_location="cpu").tolist() == [0, 1, 2]


# Absent devices


@pytest.mark.parametrize(
    ("name", "others"),
    [("cpu", ["cuda", "mps", "xpu"]), ("cuda", ["mps", "xpu"]), ("mps", ["cuda", "xpu"]), ("xpu", ["cuda", "mps"])],
)
@pytest.mark.parametrize(
    "use",
    [lambda d: torch.zeros(1, device=d), lambda d: torch.zeros(1).to(d), lambda d: torch.tensor([1], device=d),
     lambda d: torch.nn.Linear(1, 1).to(d), torch.Generator],
    ids=["factory", "to", "tensor", "Module.to", "Generator"],
)  # fmt: skip
def test_device_that_is_not_there_is_refused(name: str, others: list[str], use: Callable[[str], object]) -> None:
    with rehearse(name):
        for other in others:
            with pytest.raises((RuntimeError, AssertionError, NotImplementedError)):
                use(other)


BEYOND = (
    "invalid device ordinal|The device index is out of range. It must be in .0, 2., but got 2."  # CUDA and HIP; SYCL
)


def test_index_beyond_the_last_device_is_refused(pair: tuple[str, str]) -> None:
    beyond = pair[1].replace("1", "2")

    with pytest.raises(RuntimeError, match=BEYOND):
        torch.zeros(1, device=beyond)
    with pytest.raises(RuntimeError, match=BEYOND):
        torch.zeros(1).to(beyond)


def test_method_of_an_absent_device_fails_as_on_that_machine() -> None:
    with rehearse("mps"), pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.zeros(1).cuda()


# meta


def test_meta_tensors_stay_meta(device: str) -> None:
    x = torch.zeros(2, device="meta")

    assert x.is_meta
    assert torch.zeros(2, device=device).to("meta").is_meta
    assert torch.empty_like(x, device=device).device == torch.device(device)
    assert (x + 1).is_meta


def test_module_made_on_meta_is_given_memory_on_the_device(device: str) -> None:
    model = torch.nn.Linear(2, 2, device="meta").to_empty(device=device)

    assert is_on(model.weight, device)
    torch.nn.init.ones_(model.weight)
    assert is_on(model.weight.sum(), device)


# Memory that is shared with others


def test_storage_of_a_device_tensor_resides_there(device: str) -> None:
    storage = torch.zeros(2, device=device).untyped_storage()

    assert str(storage.device) == device
    assert str(storage.cpu().device) == "cpu"
    assert str(storage.clone().device) == device
    assert is_on(torch.empty(0, device=device).set_(storage), device)


def test_swap_exchanges_places(device: str) -> None:
    here, there = torch.zeros(2), torch.ones(2, device=device)

    torch.utils.swap_tensors(here, there)

    assert is_on(here, device)
    assert is_on(there, "cpu")


def test_pinned_memory_is_host_memory(on: Rehearsal) -> None:
    if not on.backend.capabilities.pinned_memory:
        with pytest.raises(RuntimeError):
            torch.zeros(2, pin_memory=True)
        return
    pinned = [torch.zeros(2).pin_memory(), torch.zeros(2, pin_memory=True), torch.tensor([1.0], pin_memory=True)]

    assert all(x.is_pinned() and is_on(x, "cpu") for x in pinned)
    assert not torch.zeros(2).is_pinned()
    assert not torch.zeros(2, device=on.device).is_pinned()
    assert not pinned[0].to(on.device).is_pinned()
    assert not (pinned[0] + 1).is_pinned()
    assert pinned[0].pin_memory() is pinned[0]
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.zeros(2, device=on.device).pin_memory()


@pytest.mark.parametrize("device", ["cuda", "cpu", "meta"])
def test_a_lazy_module_goes_wherever_others_go(device: str) -> None:
    """Its parameters allow some methods by their identity, which a stand-in does not have."""
    with rehearse("cuda"):
        layer = torch.nn.LazyLinear(2).to(device)

        assert layer.weight.device.type == device


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.to("cpu", copy=True),
        lambda x: x.to(device="cpu", copy=True),
        lambda x: x.to("cpu", torch.float32, False, True),
        lambda x: x.to(torch.device("cpu"), copy=True, dtype=torch.float64),
        lambda x: x.to(copy=True, dtype=torch.float32),
    ],
    ids=["text", "keyword", "by position", "device and dtype", "no device"],
)
def test_a_copy_on_the_host_is_on_the_host(copy: Callable[[Tensor], Tensor]) -> None:
    with rehearse("cuda") as rehearsal:
        there, here = torch.ones(2, device="cuda"), torch.ones(2)
        before = rehearsal.statistics().h2d_nbytes
        copied = copy(here)
        there + there

        assert copied.device.type == "cpu"
        assert copied.data_ptr() != here.data_ptr()
        assert rehearsal.statistics().h2d_nbytes == before
        with pytest.raises(RuntimeError, match="same device"):
            copied + there


def test_a_copy_on_the_device_is_on_the_device() -> None:
    with rehearse("cuda"):
        there = torch.ones(2, device="cuda")
        copied = there.to("cuda", copy=True)

        assert copied.device.type == "cuda"
        assert copied.data_ptr() != there.data_ptr()
