"""Ops and tensors that are not PyTorch's plain ones: registered ops, subclasses, sparse, nested, quantized, complex."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from wherry.rehearse import rehearse


def place(x: Tensor) -> str:
    return str(x.device)


# Ops that a library registers


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    lib = torch.library.Library("wherry_tests", "FRAGMENT")
    yield lib
    lib._destroy()


@torch.library.custom_op("wherry_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op("wherry_tests::makes", mutates_args=())
def makes(x: Tensor) -> Tensor:
    return torch.arange(x.shape[0], device=x.device) + x.long()


@torch.library.custom_op("wherry_tests::strays", mutates_args=())
def strays(x: Tensor) -> Tensor:
    return x + torch.ones(x.shape)


@torch.library.custom_op("wherry_tests::fills", mutates_args=("x",))
def fills(x: Tensor) -> None:
    x.fill_(7)


@torch.library.custom_op("wherry_tests::kind", mutates_args=(), device_types="cpu")
def kind(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


@kind.register_kernel("cuda")
def _kind_cuda(x: Tensor) -> Tensor:
    assert x.is_cuda
    return torch.ones_like(x)


@torch.library.custom_op("wherry_tests::square", mutates_args=())
def square(x: Tensor) -> Tensor:
    return x * x


def _square_backward(ctx: Any, gradient: Tensor) -> Tensor:
    return gradient * 2 * ctx.saved_tensors[0]


def _square_setup(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


square.register_autograd(_square_backward, setup_context=_square_setup)


@pytest.mark.parametrize("op", [twice, makes, square], ids=["computes", "makes a tensor", "has a gradient"])
def test_custom_op_runs_on_the_device(op: Callable[[Tensor], Tensor], device: str) -> None:
    assert place(op(torch.zeros(3, device=device))) == device
    assert place(op(torch.zeros(3))) == "cpu"


def test_custom_op_that_makes_a_stray_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        strays(torch.zeros(3, device=device))
    strays(torch.zeros(3))


def test_custom_op_that_writes_writes_on_the_device(device: str) -> None:
    x = torch.zeros(2, device=device)
    fills(x)

    assert (place(x), x.tolist()) == (device, [7, 7])


def test_custom_op_runs_the_kernel_of_its_device() -> None:
    with rehearse("cuda"):
        assert kind(torch.zeros(2, device="cuda")).tolist() == [1, 1]
        assert kind(torch.zeros(2)).tolist() == [0, 0]
    with rehearse("cpu"):
        assert kind(torch.zeros(2)).tolist() == [0, 0]


def test_custom_op_has_its_gradient_on_the_device(device: str) -> None:
    x = torch.full((2,), 3.0, device=device, requires_grad=True)

    square(x).sum().backward()

    assert x.grad is not None
    assert (place(x.grad), x.grad.tolist()) == (device, [6, 6])


def test_op_with_a_kernel_for_the_cpu_in_a_library_runs(library: torch.library.Library, device: str) -> None:
    library.define("plus(Tensor x, Tensor y) -> Tensor")
    library.impl("plus", lambda x, y: x + y, "CompositeExplicitAutograd")

    assert place(torch.ops.wherry_tests.plus(torch.zeros(2, device=device), torch.zeros(2, device=device))) == device
    with pytest.raises(RuntimeError, match="same device"):
        torch.ops.wherry_tests.plus(torch.zeros(2, device=device), torch.zeros(2))


# Subclasses of Tensor


class Tagged(Tensor):
    """A subclass that only carries a mark."""


class Logged(Tensor):
    """A wrapper: it holds another tensor and unwraps itself."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Logged:
        self = Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )
        self.inner = inner
        return self

    def __init__(self, inner: Tensor) -> None:
        super().__init__()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(x: Any) -> Any:
            return x.inner if isinstance(x, Logged) else x

        def wrap(x: Any) -> Any:
            return Logged(x) if isinstance(x, Tensor) else x

        return tree_map(wrap, func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {})))


def test_subclass_keeps_class_and_device(device: str) -> None:
    x = torch.zeros(2, device=device).as_subclass(Tagged)

    assert type(x + 1) is Tagged
    assert place(x + 1) == device
    assert place(x.cpu()) == "cpu"
    assert type(torch.zeros(2).as_subclass(Tagged).to(device)) is Tagged
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(2)


def test_wrapper_lives_where_its_inside_lives(device: str) -> None:
    x = Logged(torch.ones(2, device="cpu").to(device))
    y = x * 2

    assert type(y) is Logged
    assert place(y.inner) == device
    assert place(y) == device
    assert y.inner.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="same device"):
        x + Logged(torch.ones(2))


def test_wrapper_moves(device: str) -> None:
    x = Logged(torch.ones(2))

    moved = x.to(device)

    assert type(moved) is Logged
    assert place(moved.inner) == device
    assert place(moved) == device
    assert place(x.inner) == "cpu"


# Layouts

SPARSE: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((1, 1)),
    "bsc": lambda x: x.to_sparse_bsc((1, 1)),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", SPARSE)
def test_sparse_tensor_is_where_its_parts_are(layout: str, device: str) -> None:
    x = SPARSE[layout](torch.eye(2, device=device))

    assert place(x) == device
    assert place(x.to_dense()) == device
    assert place(x.values() if layout != "coo" else x._values()) == device
    assert place(x.cpu()) == "cpu"
    assert place(SPARSE[layout](torch.eye(2)).to(device)) == device
    assert f"device='{device}'" in repr(x)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_product_stays_on_the_device(layout: str, device: str) -> None:
    x = SPARSE[layout](torch.eye(2, device=device))

    assert place(x @ torch.ones(2, 2, device=device)) == device
    with pytest.raises(RuntimeError):
        x @ torch.ones(2, 2)
    with pytest.raises(RuntimeError):
        SPARSE[layout](torch.eye(2)) @ torch.ones(2, 2, device=device)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensor_is_made_on_the_device(device: str) -> None:
    indices, values = torch.tensor([[0], [1]]), torch.tensor([2.0])

    made = torch.sparse_coo_tensor(indices, values, (2, 2), device=device)
    beside = torch.sparse_coo_tensor(indices.to(device), values.to(device), (2, 2))

    assert place(made) == place(beside) == device
    assert place(made.coalesce().indices()) == device
    assert made.to_dense().tolist() == [[0, 2], [0, 0]]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_gradient_of_an_embedding_is_on_the_device(device: str) -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True).to(device)
    optimizer = torch.optim.SparseAdam(embedding.parameters())

    embedding(torch.tensor([1], device=device)).sum().backward()
    optimizer.step()

    assert embedding.weight.grad is not None
    assert embedding.weight.grad.is_sparse
    assert place(embedding.weight.grad) == device


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensor_is_on_the_device(layout: torch.layout, device: str) -> None:
    parts = [torch.ones(2, 3, device=device), torch.ones(4, 3, device=device)]

    x = torch.nested.nested_tensor(parts, layout=layout)
    asked = torch.nested.nested_tensor([p.cpu() for p in parts], layout=layout, device=device)
    beside = torch.nested.as_nested_tensor(parts, layout=layout)

    assert {place(x), place(asked), place(beside), place(x * 2), place(x.to_padded_tensor(0.0))} == {device}
    assert {place(part) for part in x.unbind()} == {device}
    assert place(x.cpu()) == "cpu"
    assert place(torch.nested.nested_tensor([torch.ones(2)], layout=layout)) == "cpu"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_jagged_tensor_from_values_and_offsets_is_on_the_device(device: str) -> None:
    values, offsets = torch.ones(6, 3, device=device), torch.tensor([0, 2, 6], device=device)

    x = torch.nested.nested_tensor_from_jagged(values, offsets)

    assert place(x) == place(x.values()) == place(x.offsets()) == device
    assert place(torch.nn.Linear(3, 2).to(device)(x)) == device


@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_quantized_tensor_stays_on_the_device(device: str) -> None:
    x = torch.quantize_per_tensor(torch.ones(2, device=device), 0.1, 0, torch.quint8)

    assert place(x) == device
    assert place(x.dequantize()) == place(x.int_repr()) == device
    assert place(x.cpu()) == "cpu"
    assert place(torch.fake_quantize_per_tensor_affine(torch.ones(2, device=device), 0.1, 0, 0, 255)) == device


COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "view_as_complex": torch.view_as_complex,
    "complex": lambda x: torch.complex(x, x),
    "polar": lambda x: torch.polar(x, x),
    "real": lambda x: torch.complex(x, x).real,
    "imag": lambda x: torch.complex(x, x).imag,
    "conj": lambda x: torch.complex(x, x).conj(),
    "resolved conj": lambda x: torch.complex(x, x).conj().resolve_conj(),
    "neg view": lambda x: torch.complex(x, x).conj().imag + 1,
    "abs": lambda x: torch.complex(x, x).abs(),
    "fft": torch.fft.fft2,
    "rfft": lambda x: torch.fft.irfft(torch.fft.rfft(x)),
    "stft": lambda x: torch.stft(x.flatten(), 4, window=torch.ones(4, device=x.device), return_complex=True),
    "matmul": lambda x: torch.complex(x, x) @ torch.complex(x, x).mH,
    "view_as_real": lambda x: torch.view_as_real(torch.complex(x, x)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_stay_on_the_device(name: str, device: str) -> None:
    assert place(COMPLEX[name](torch.ones(4, 2, device=device))) == device


def test_stft_wants_its_window_on_the_device(device: str) -> None:
    with pytest.raises(RuntimeError):
        torch.stft(torch.ones(16, device=device), 4, window=torch.ones(4), return_complex=True)


# Helpers that C++ makes with the options of another tensor


HELPED: dict[str, Callable[[str], Tensor]] = {
    "one_hot": lambda d: F.one_hot(torch.tensor([0, 1], device=d)),
    "quantile": lambda d: torch.ones(4, device=d).quantile(0.5),
    "softmax with a dtype": lambda d: torch.ones(4, device=d).softmax(0, dtype=torch.bfloat16),
    "attention": lambda d: F.scaled_dot_product_attention(*[torch.ones(1, 2, 4, 8, device=d)] * 3, is_causal=True),
    "combinations": lambda d: torch.combinations(torch.arange(3, device=d)),
    "cartesian_prod": lambda d: torch.cartesian_prod(torch.arange(3, device=d), torch.arange(2, device=d)),
    "tensordot": lambda d: torch.tensordot(torch.ones(2, 2, device=d), torch.ones(2, 2, device=d), 1),
    "matrix_power": lambda d: torch.linalg.matrix_power(torch.eye(2, device=d), 0),
    "matrix_rank": lambda d: torch.linalg.matrix_rank(torch.eye(2, device=d)),
    "pinv": lambda d: torch.linalg.pinv(torch.eye(2, device=d)),
    "vander": lambda d: torch.vander(torch.arange(3, device=d)),
    "block_diag": lambda d: torch.block_diag(torch.ones(1, 1, device=d), torch.ones(2, 2, device=d)),
    "diag_embed": lambda d: torch.ones(2, device=d).diag_embed(),
    "nonzero": lambda d: torch.ones(2, device=d).nonzero(),
    "unique": lambda d: torch.tensor([1, 1, 2], device=d).unique(),
    "bincount": lambda d: torch.tensor([1, 1, 2], device=d).bincount(),
    "histc": lambda d: torch.ones(3, device=d).histc(4),
    "repeat_interleave": lambda d: torch.ones(3, device=d).repeat_interleave(2),
    "triu": lambda d: torch.triu(torch.ones(3, 3, device=d)),
    "interpolate": lambda d: F.interpolate(torch.ones(1, 1, 2, 2, device=d), scale_factor=2.0),
    "affine_grid": lambda d: F.affine_grid(torch.ones(1, 2, 3, device=d), [1, 1, 2, 2], align_corners=False),
    "grid_sample": lambda d: F.grid_sample(
        torch.ones(1, 1, 2, 2, device=d), torch.zeros(1, 2, 2, 2, device=d), align_corners=False
    ),
    "cov": lambda d: torch.cov(torch.ones(2, 3, device=d)),
    "corrcoef": lambda d: torch.corrcoef(torch.eye(3, device=d)),
    "trapezoid": lambda d: torch.trapezoid(torch.ones(3, device=d)),
    "gradient": lambda d: torch.gradient(torch.ones(3, device=d))[0],
    "nan_to_num": lambda d: torch.ones(3, device=d).nan_to_num(),
    "embedding_bag": lambda d: F.embedding_bag(torch.tensor([[0]], device=d), torch.ones(2, 2, device=d)),
    "ctc_loss": lambda d: F.ctc_loss(
        torch.zeros(5, 2, 4, device=d).log_softmax(-1), torch.ones(2, 3, dtype=torch.long, device=d), (5, 5), (3, 3)
    ),
    "multi_margin_loss": lambda d: F.multi_margin_loss(
        torch.ones(2, 3, device=d), torch.zeros(2, dtype=torch.long, device=d)
    ),
    "label smoothing": lambda d: F.cross_entropy(
        torch.ones(2, 3, device=d), torch.zeros(2, dtype=torch.long, device=d), label_smoothing=0.1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HELPED)
def test_helper_tensors_of_an_op_are_no_strays(name: str, device: str) -> None:
    result = HELPED[name](device)

    assert place(result) == device
    with rehearse("cpu"):
        plain = HELPED[name]("cpu")
    assert torch.equal(result.cpu(), plain)


def test_dlpack_round_trip_stays_on_the_device(device: str) -> None:
    x = torch.arange(3.0, device=device)

    assert place(torch.from_dlpack(x)) == device
    assert torch.from_dlpack(x).tolist() == [0, 1, 2]


# Subclasses and modes know functions by the names that a program uses


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("matmul", lambda x: torch.matmul(x, x)),
        ("quantile", lambda x: torch.quantile(x, 0.5)),
        ("inner", lambda x: torch.inner(x, x)),
        ("block_diag", lambda x: torch.block_diag(x, x)),
    ],
)
def test_subclass_finds_a_function_under_its_name(name: str, call: Any, device: str) -> None:
    class Tagged(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is getattr(torch, name):
                return f"own {name}"
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2, 2, device=device).as_subclass(Tagged)

    assert call(x) == f"own {name}"


def test_function_mode_sees_one_product(device: str) -> None:
    seen: list[Any] = []

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x, w = torch.ones(5, 2, 4, device=device), torch.ones(1, 4, 3, device=device)
    with Watching():
        y = torch.matmul(x, w)
        z = x @ w

    assert seen == [torch.matmul, Tensor.matmul]
    assert torch.equal(y, z)
    assert str(y.device) == device
