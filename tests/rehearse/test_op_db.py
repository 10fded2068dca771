"""PyTorch's own operator database as an oracle: on a virtual device every operator gives what it gives on the CPU.

An entry's samples are made on the virtual device. The reference runs on plain CPU copies of them, which share storages
where the samples do. Results agree bit for bit and reside on the device.

The database leans on names that warn, which is its own business, so warnings are no errors here. The whole database
takes 40 seconds a device on one core.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core as opinfo_core
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from wherry.rehearse import rehearse

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

DEVICES = ("cuda", "mps", "xpu")  # rocm speaks as cuda does, down to the device type

OTHER_KERNEL = ("matmul", "__rmatmul__")
"""Entries whose last bit may differ because PyTorch itself takes another kernel while any dispatch mode listens.

at::native::matmul asks `isTensorSubclassLike` and then calls mm where it would call bmm, for one sample
(aten/src/ATen/native/LinearAlgebra.cpp `should_fold`; TensorSubclassLikeUtils.h).
"""

NOT_REPRODUCIBLE = ("linalg_lstsq", "linalg_lstsq_grad_oriented")
"""Entries that do not give the same bits twice on plain CPU: LAPACK's gelsy is handed pivots that nobody initialised
(aten/src/ATen/native/BatchLinearAlgebra.cpp, `linalg_lstsq`: jpvt is at::empty). Their other drivers agree.
"""

EXCEPTIONS = OTHER_KERNEL + NOT_REPRODUCIBLE
"""Every exception; each has a test that shows its reason. At most five."""

UNDEFINED_VALUES = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
"""Entries that return memory as they find it: shape, strides, dtype and device are all they promise."""

ENTRIES = {op.formatted_name: op for op in op_db if op.supports_dtype(torch.float32, "cpu")}


class Listening(TorchDispatchMode):
    """A dispatch mode that does nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Sample:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on_the_cpu(self, storages: dict[int, torch.UntypedStorage]) -> Sample:
        """The same values in plain CPU tensors; what shares a storage here shares one there, also with other samples."""

        def plain(value: Any) -> Any:
            if isinstance(value, torch.device):
                return torch.device("cpu")
            if isinstance(value, str) and value.startswith(DEVICES):
                return "cpu"
            return plain_tensor(value) if isinstance(value, Tensor) else value

        def plain_tensor(tensor: Tensor) -> Tensor:
            if tensor.layout != torch.strided or tensor.is_nested:
                return tensor.detach().clone().requires_grad_(tensor.requires_grad)
            storage = tensor.untyped_storage()
            if storage._cdata not in storages:
                copy = torch.UntypedStorage(storage.nbytes())
                storages[storage._cdata] = copy.copy_(storage)
            out = torch.empty(0, dtype=tensor.dtype)
            out.set_(storages[storage._cdata], tensor.storage_offset(), tensor.size(), tensor.stride())
            out = out.conj() if tensor.is_conj() else out
            out = torch._neg_view(out) if tensor.is_neg() else out
            return out.requires_grad_(tensor.requires_grad)

        return Sample(*tree_map(plain, (self.args, self.kwargs)))

    def asks_for(self, device_type: str) -> bool:
        """Whether an argument names a device of that type."""
        leaves, _ = tree_flatten((self.args, self.kwargs))
        return any(isinstance(leaf, str | torch.device) and str(leaf).startswith(device_type) for leaf in leaves)

    def is_placed(self) -> bool:
        """Whether any argument says where the result belongs."""
        leaves, _ = tree_flatten((self.args, self.kwargs))
        return any(isinstance(leaf, Tensor | torch.device) for leaf in leaves) or any(map(self.asks_for, DEVICES))


@pytest.fixture(autouse=True)
def _no_look_at_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpInfo looks through the whole stack for a unittest to report to, which takes most of the time there is none."""
    for module in (common_utils, opinfo_core):
        monkeypatch.setattr(module, "extract_test_fn", lambda: None)


def samples_of(entry: Any, device: str, *, requires_grad: bool = False) -> list[Sample]:
    torch.manual_seed(0)
    inputs = entry.sample_inputs(device, torch.float32, requires_grad=requires_grad)
    return [Sample((s.input, *s.args), s.kwargs) for s in inputs]


def outcome(function: Callable[..., Any], sample: Sample) -> Any:
    """What a call returns, or the type of what it raises."""
    torch.manual_seed(1)
    try:
        return function(*sample.args, **sample.kwargs)
    except Exception as error:
        return type(error)


def tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def bits(tensor: Tensor) -> Tensor:
    """A tensor as integers, so that NaNs and signed zeros compare by their bits."""
    if tensor.is_nested:
        return torch.cat([bits(part).flatten() for part in tensor.unbind()])
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    plain = tensor.detach().resolve_conj().resolve_neg().flatten()
    return plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def same_values(got: Any, wanted: Any, *, defined: bool = True) -> bool:
    """Whether two results are equal, bit for bit where they are tensors. NaNs are equal whatever their payload."""
    got_leaves, got_tree = tree_flatten(got)
    wanted_leaves, wanted_tree = tree_flatten(wanted)
    if got_tree != wanted_tree:
        return False
    return all(same_leaf(a, b, defined=defined) for a, b in zip(got_leaves, wanted_leaves, strict=True))


def same_leaf(got: Any, wanted: Any, *, defined: bool) -> bool:
    if not isinstance(got, Tensor):
        return type(got) is type(wanted) and (got == wanted or (is_nan(got) and is_nan(wanted)))
    if (got.layout, got.dtype, got.is_nested) != (wanted.layout, wanted.dtype, wanted.is_nested):
        return False
    if not got.is_nested and got.shape != wanted.shape:
        return False
    if not defined:
        return got.stride() == wanted.stride()
    if torch.equal(bits(got), bits(wanted)):
        return True
    return got.layout == torch.strided and not got.is_nested and torch.equal(*map(without_nan_payload, (got, wanted)))


def is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def without_nan_payload(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    return (
        bits(torch.where(real.isnan(), torch.full_like(real, float("nan")), real))
        if real.is_floating_point()
        else bits(real)
    )


def disagreements(function: Callable[..., Any], samples: list[Sample], name: str, device: str) -> Iterator[str]:
    """What is wrong with a function on a rehearsed device, in comparison with the CPU, in words."""
    storages: dict[int, torch.UntypedStorage] = {}
    copies = [sample.on_the_cpu(storages) for sample in samples]
    wanted_of = [outcome(function, copy) for copy in copies]
    with rehearse(device) as rehearsal:
        got_of = [outcome(function, sample) for sample in samples]
        elsewhere_of = [{str(t.device) for t in tensors(got)} - {rehearsal.device} for got in got_of]
    for number, (sample, wanted, got, elsewhere) in enumerate(
        zip(samples, wanted_of, got_of, elsewhere_of, strict=True)
    ):
        if isinstance(wanted, type) or isinstance(got, type):
            if got is not wanted:
                yield f"sample {number}: {got!r} instead of {wanted!r}"
            continue
        if elsewhere and not (elsewhere == {"cpu"} and (sample.asks_for("cpu") or not sample.is_placed())):
            yield f"sample {number}: on {elsewhere}"
        if not same_values(got, wanted, defined=name not in UNDEFINED_VALUES):
            yield f"sample {number}: other values"


def made_on(entry: Any, device: str, *, requires_grad: bool = False) -> list[Sample]:
    with rehearse(device) as rehearsal:
        return samples_of(entry, rehearsal.device, requires_grad=requires_grad)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in EXCEPTIONS])
def test_entry_agrees_with_the_cpu_and_stays_on_the_device(name: str, device: str) -> None:
    entry = ENTRIES[name]
    samples = made_on(entry, device)

    assert samples
    assert list(disagreements(entry, samples, name, device)) == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OTHER_KERNEL)
def test_pytorch_takes_another_kernel_under_any_mode(name: str, device: str) -> None:
    entry = ENTRIES[name]
    samples = made_on(entry, device)

    def listened_to(*args: Any, **kwargs: Any) -> Any:
        with Listening():
            return entry(*args, **kwargs)

    assert list(disagreements(entry, samples, name, device))  # else it is no exception any more
    assert list(disagreements(listened_to, samples, name, device)) == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NOT_REPRODUCIBLE)
def test_driver_that_is_reproducible_agrees(name: str, device: str) -> None:
    entry = ENTRIES[name]
    samples = [sample for sample in made_on(entry, device) if sample.kwargs["driver"] != "gelsy"]

    assert samples
    assert list(disagreements(entry, samples, name, device)) == []


@pytest.mark.parametrize("name", NOT_REPRODUCIBLE)
def test_plain_cpu_does_not_give_the_same_bits_twice(name: str) -> None:
    entry = ENTRIES[name]
    samples = [sample for sample in samples_of(entry, "cpu") if sample.kwargs["driver"] == "gelsy"]
    first = [outcome(entry, sample) for sample in samples]

    def again() -> bool:
        return same_values([outcome(entry, sample.on_the_cpu({})) for sample in samples], first)

    assert not all(again() for _ in range(50))


# Gradients


OTHER_BACKWARD = ("prod", "masked_prod", "linalg_eig")
"""Entries whose gradients differ while any dispatch mode listens, again by `isTensorSubclassLike`: prod's backward takes
the way for zeros, eig's does not check the gauge (torch/csrc/autograd/FunctionsManual.cpp).
"""


def gradients_of(entry: Callable[..., Any]) -> Callable[..., Any]:
    """The function from arguments to the gradients of everything that requires one."""

    def gradients(*args: Any, **kwargs: Any) -> list[Tensor | None] | None:
        inputs = [t for t in tensors((args, kwargs)) if t.requires_grad]
        outputs = [t for t in tensors(entry(*args, **kwargs)) if t.requires_grad]
        if not inputs or not outputs:
            return None
        return list(torch.autograd.grad(outputs, inputs, [torch.ones_like(t) for t in outputs], allow_unused=True))

    return gradients


DIFFERENTIABLE = [name for name, op in ENTRIES.items() if op.supports_autograd]


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if name not in (*OTHER_BACKWARD, *NOT_REPRODUCIBLE)])
def test_gradients_agree_with_the_cpu_and_stay_on_the_device(name: str) -> None:
    samples = made_on(ENTRIES[name], "cuda", requires_grad=True)

    assert list(disagreements(gradients_of(ENTRIES[name]), samples, name, "cuda")) == []


@pytest.mark.parametrize("name", OTHER_BACKWARD)
def test_pytorch_takes_another_backward_under_any_mode(name: str) -> None:
    gradients = gradients_of(ENTRIES[name])
    samples = made_on(ENTRIES[name], "cuda", requires_grad=True)

    def listened_to(*args: Any, **kwargs: Any) -> Any:
        with Listening():
            return gradients(*args, **kwargs)

    assert list(disagreements(gradients, samples, name, "cuda"))  # else it is no exception any more
    assert list(disagreements(listened_to, samples, name, "cuda")) == []


def test_exceptions_are_few_and_known() -> None:
    assert len(EXCEPTIONS) <= 5
    assert set(EXCEPTIONS) <= set(ENTRIES)
    assert set(UNDEFINED_VALUES) <= set(ENTRIES)


def test_database_has_the_entries_it_had() -> None:
    assert len(ENTRIES) > 600


# Twins: the comparison notices what it is there for


def test_wrong_value_is_noticed() -> None:
    samples = made_on(ENTRIES["sin"], "cuda")
    calls: list[Tensor] = []

    def one_bit_off(x: Tensor) -> Tensor:
        calls.append(x)
        out = torch.sin(x)
        return torch.nextafter(out, out + 1) if x.is_cuda else out

    found = list(disagreements(one_bit_off, samples, "sin", "cuda"))

    assert found
    assert all("other values" in sentence for sentence in found)


def test_result_that_strays_is_noticed() -> None:
    samples = made_on(ENTRIES["sin"], "mps")

    assert "on {'cpu'}" in next(disagreements(lambda x: torch.sin(x).cpu(), samples, "sin", "mps"))


def test_error_of_its_own_is_noticed() -> None:
    samples = made_on(ENTRIES["sin"], "xpu")

    def fails_on_the_device(x: Tensor) -> Tensor:
        if x.is_xpu:
            raise NotImplementedError
        return torch.sin(x)

    assert "NotImplementedError" in next(disagreements(fails_on_the_device, samples, "sin", "xpu"))


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
