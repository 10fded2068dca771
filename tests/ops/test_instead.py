"""Every equivalent is code that runs: it answers what it stands for, and runs where that raises."""

from __future__ import annotations

import ast
import linecache
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import wherry
from wherry import backends
from wherry.backends import Backend
from wherry.ops import catalog, instead
from wherry.ops.catalog import Standing
from wherry.ops.instead import Instead, in_words_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, .* are deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:index_reduce.. is in beta:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state:UserWarning"),
]

ENTRIES = instead.TABLE
WITHOUT = [backend for backend in backends.all() if backend.virtual is not None and backend.kernels is not None]

SQUARE = torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
TALL = torch.tensor([[1.0, 0.5], [0.2, 2.0], [0.7, -1.0]])
SMALL = torch.tensor([[0.3, -0.2, 1.5], [-0.7, 0.0, 0.9]])
VIDEO = torch.linspace(-1, 1, 64).sin().reshape(1, 1, 4, 4, 4)
IMAGE = torch.linspace(-1, 1, 49).cos().reshape(1, 1, 7, 7)

BY_NAME: dict[str, Any] = {
    "x": SMALL,
    "y": torch.ones(3, 2),
    "a": SQUARE,
    "b": TALL,
    "index": torch.tensor([0, 4]),
    "values": torch.tensor([1.0, 2.0]),
    "target": torch.tensor([0, 2]),
    "lengths": torch.tensor([1, 2]),
    "rate": torch.ones(3),
    "count": torch.full((3,), 4.0),
    "prob": torch.full((3,), 0.5),
    "mask": torch.tensor([[True, False, False], [False, False, True]]),
    "bias": torch.ones(2),
    "weight": torch.ones(3, 2),
    "log_probs": torch.zeros(5, 2, 4).log_softmax(-1),
    "targets": torch.ones(2, 3, dtype=torch.long),
    "input_lengths": torch.full((2,), 5),
    "target_lengths": torch.full((2,), 3),
    "diagonals": torch.ones(1, 3),
    "offsets": torch.tensor([0]),
    "shape": (3, 3),
    "out": torch.zeros(()),
    "scale": 0.1,
    "zero_point": 3,
    "parameters": [torch.ones(2)],
    "blocks": (1, 1),
    "path": __file__,
} | {name: value for value, names in (
    (0, "dim start axis"), (1, "length lower_left"), (0.1, "lower"), (0.4, "upper"), (2, "d h output_size end base size"),
    (4, "w steps bins"), (3, "n groups"), (-1.0, "low"), (1.0, "high"),
) for name in names.split()}  # fmt: skip
"""What the names in the entries stand for, where an entry has nothing particular (`PARTICULAR`)."""

PARTICULAR: dict[str, dict[str, Any]] = {
    "F.channel_shuffle(x, groups)": {"x": torch.arange(12.0).reshape(1, 6, 2)},
    "torch.narrow_copy(x, dim, start, length, out=out)": {"out": torch.zeros(1, 3)},
    "torch.std(x, dim, out=out)": {"out": torch.zeros(3)},
    "torch.var(x, dim, out=out)": {"out": torch.zeros(3)},
    "x.logit_()": {"x": torch.tensor([0.2, 0.9])},
    **{f"F.adaptive_{kind}_pool3d(x, {size})": {"x": VIDEO}
       for kind in ("avg", "max") for size in ("(d, h, w)", "output_size")},
    "F.adaptive_avg_pool1d(x, output_size)": {"x": IMAGE[0], "output_size": 3},
    "F.adaptive_avg_pool2d(x, output_size)": {"x": IMAGE},
    "F.adaptive_avg_pool2d(x, (h, w))": {"x": IMAGE},
    "F.adaptive_max_pool2d(x, output_size)": {"x": IMAGE[..., :4, :1]},
    "F.fractional_max_pool2d(x, kernel_size, output_size=output_size)": {"x": IMAGE, "kernel_size": 2},
    "F.fractional_max_pool3d(x, kernel_size, output_size=output_size)": {"x": VIDEO, "kernel_size": 2},
    **{f'torch.segment_reduce(x, "{way}", lengths=lengths)': {"x": TALL} for way in ("sum", "mean", "max")},
    **{f'F.interpolate(x, size=size, mode="{mode}", antialias=True)': {"x": IMAGE}
       for mode in ("bilinear", "bicubic", "lanczos")},
    "F.multilabel_margin_loss(x, target)": {"target": torch.tensor([[0, -1, 0], [2, 1, -1]])},
    "torch.heaviside(x, values)": {"values": torch.tensor(0.5)},
    "torch.linalg.lstsq(a, b).solution": {"a": TALL, "b": torch.ones(3, 1)},
    "torch.linalg.householder_product(*torch.geqrf(a))": {"a": TALL},
    "torch.linalg.lu_solve(LU, pivots, b)": dict(zip(("LU", "pivots"), torch.linalg.lu_factor(SQUARE), strict=True)),
    "torch.ormqr(a, tau, x)": dict(zip(("a", "tau"), torch.geqrf(SQUARE), strict=True)) | {"x": TALL},
    "torch._int_mm(a, b)": {
        "a": torch.full((17, 8), -128, dtype=torch.int8), "b": torch.full((8, 8), 127, dtype=torch.int8),
    },
    "torch.special.ndtri(x)": {"x": torch.tensor([0.01, 0.3, 0.5, 0.9])},
    "torch.special.log_ndtr(x)": {"x": torch.tensor([-30.0, -3.0, -1.0, 0.0, 2.0, 5.0])},
    "torch.special.airy_ai(x)": {"x": torch.tensor([0.5, 2.0])},
    "torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, low, high)": {
        "scale": torch.tensor([0.1, 0.2]), "zero_point": torch.tensor([0, 1], dtype=torch.int32),
        "low": -128, "high": 127,
    },
    "torch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)": {"low": -8, "high": 7},
}  # fmt: skip
"""What the names of one entry stand for."""

RANDOM = {"rrelu_with_noise", "fractional_max_pool2d", "fractional_max_pool3d", "poisson", "binomial"}
"""Operators that draw: what comes of the two is alike in shape and dtype, and in values only without a draw."""


def namespace(entry: Instead, device: str) -> dict[str, Any]:
    """What the names of an entry stand for on a device; each tensor is its own, and asks for a gradient if it may."""
    names = {part.id for part in ast.walk(ast.parse(entry.in_place_of)) if isinstance(part, ast.Name)}
    values = BY_NAME | {"device": device} | PARTICULAR.get(entry.in_place_of, {})
    return {name: placed(values[name], device) for name in sorted(names - {"torch", "F"})}


def placed(value: Any, device: str) -> Any:
    if isinstance(value, list):
        return [placed(each, device) for each in value]
    return value.detach().clone().to(device) if isinstance(value, Tensor) else value


def run(code: str, names: Mapping[str, Any]) -> Any:
    """The value of the last statement."""
    file = f"<{code}>"
    *first, last = code.splitlines()
    text = "\n".join([*first, f"out = {last}"]) + "\n"
    # A rehearsal reads in the source which function is running.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {"torch": torch, "F": F, **names}
    exec(compile(text, file, "exec"), scope)
    out = scope["out"]
    if isinstance(out, torch.optim.Optimizer):
        parameter = out.param_groups[0]["params"][0]
        parameter.grad = torch.ones_like(parameter)
        out.step()
        return parameter
    return out


def leaves(names: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that may have a gradient."""
    found = [v for k, v in names.items() if isinstance(v, Tensor) and k not in ("out", "scale")]
    return [tensor for tensor in found if tensor.is_floating_point()]


def tensors(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else [part for each in out for part in tensors(each)]


def gradients(code: str, names: dict[str, Any]) -> list[Tensor | None] | None:
    """Of the sum of what some code gives, for each leaf; None where it has none."""
    for leaf in leaves(names):
        leaf.requires_grad_()
    try:
        outs = [each for each in tensors(run(code, names)) if each.requires_grad and not each.is_complex()]
        if not outs:
            return None
        total = sum((each.to_dense() if each.is_sparse else each).sum() for each in outs)
        assert isinstance(total, Tensor)
        return list(torch.autograd.grad(total, leaves(names), allow_unused=True))
    except RuntimeError as error:
        if "in-place operation" in str(error) or "out=..." in str(error) or "not implemented" in str(error):
            return None
        if "a view of a leaf" in str(error):
            return None
        raise


def identity(entry: Instead) -> str:
    return entry.in_place_of


@pytest.mark.parametrize("entry", ENTRIES, ids=identity)
def test_both_have_the_same_values(entry: Instead) -> None:
    before, after = (run(code, namespace(entry, "cpu")) for code in (entry.in_place_of, entry.write))

    one, other = tensors(before), tensors(after)
    assert [each.shape for each in one] == [each.shape for each in other] or "returned is flat" in entry.note
    assert [each.dtype for each in one] == [each.dtype for each in other]
    if not RANDOM & {*entry.operators} or ("training=True" not in entry.in_place_of and not entry.through_cpu):
        for first, second in zip(one, other, strict=True):
            dense = [each.to_dense() if each.layout is not torch.strided else each for each in (first, second)]
            torch.testing.assert_close(dense[1].reshape(dense[0].shape), dense[0])


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not RANDOM & {*e.operators}], ids=identity)
def test_both_have_the_same_gradients(entry: Instead) -> None:
    before = gradients(entry.in_place_of, namespace(entry, "cpu"))
    if before is None:
        return

    after = gradients(entry.write, namespace(entry, "cpu"))

    assert after is not None
    for first, second in zip(before, after, strict=True):
        if first is not None:
            assert second is not None
            torch.testing.assert_close(second, first, rtol=1e-4, atol=1e-5)


def lacking(entry: Instead) -> list[Backend]:
    """The backends that have no kernel for an operator of an entry, or refuse some shapes."""
    return [backend for backend in WITHOUT if {*entry.operators} & (missing(backend) | {*limits(backend)})]


@cache
def missing(backend: Backend) -> frozenset[str]:
    """The operators of which some overload has no kernel on a backend."""
    names = (name for name in catalog.overloads() if name not in OTHER_OVERLOADS)
    return frozenset(
        name.partition(".")[0] for name in names if catalog.support(name, backend).standing is Standing.MISSING
    )


def limits(backend: Backend) -> Iterable[str]:
    known = {} if backend.kernels is None else backend.kernels.limits
    return [operator for operator, limit in known.items() if not limit.seldom]


OTHER_OVERLOADS = {
    "quantize_per_tensor.tensors",  # of a list of tensors: has no kernel on CUDA, where those of one tensor do
}

PAIRS = [(entry, backend) for entry in ENTRIES for backend in lacking(entry)]


@pytest.mark.parametrize(
    ("entry", "backend"), PAIRS, ids=lambda value: getattr(value, "in_place_of", None) or value.name
)
def test_the_equivalent_runs_where_the_other_raises(entry: Instead, backend: Backend) -> None:
    device = f"{backend.device_type}:0"
    attempt = gradients if entry.backward else run

    with wherry.rehearse(backend.name, fallback=False):
        with pytest.raises((NotImplementedError, RuntimeError)) as caught:
            attempt(entry.in_place_of, namespace(entry, device))
        out = run(entry.write, namespace(entry, device))
        if not RANDOM & {*entry.operators}:
            gradients(entry.write, namespace(entry, device))

        assert {str(each.device) for each in tensors(out)} == {device}
    named = any(f"aten::{name}" in str(caught.value) for name in entry.operators)
    assert named or "Adaptive pool MPS" in str(caught.value)


def test_every_entry_is_needed_somewhere() -> None:
    assert [entry.in_place_of for entry in ENTRIES if not lacking(entry)] == []


@pytest.mark.parametrize("backend", WITHOUT, ids=lambda backend: backend.name)
def test_what_a_program_can_call_has_an_answer(backend: Backend) -> None:
    public = {name for name in missing(backend) if not name.startswith("_") and hasattr(torch, name)}

    assert {name for name in public if not instead.of(name)} <= WITHOUT_ANSWER


WITHOUT_ANSWER = {
    *("batch_norm_update_stats", "fake_quantize_per_channel_affine_cachemask", "hash_tensor"),
    *("quantize_per_channel", "quantize_per_tensor_dynamic"),  # tensors of a quantized type, which are on their way out
    "sspaddmm",  # of two sparse tensors and a dense one; nobody is known to call it
}
"""Missing somewhere, and named by `torch`, but nothing that a program would be told another way to write."""


def test_in_the_words_of_the_program() -> None:
    assert {call: words(call) for call in WRITTEN} == WRITTEN


def words(call: str) -> str | None:
    node = ast.parse(call, mode="eval").body
    found = in_words_of(node)
    return None if found is None else found[1]


WRITTEN = {
    # A function, a method, a name that was imported, another name for the module.
    "torch.take(scores, self.index[0])": "scores.flatten()[self.index[0]]",
    "(a + b).take(i)": "(a + b).flatten()[i]",
    "pdist(points)": "torch.cdist(points, points, compute_mode='donot_use_mm_for_euclid_dist')"
    "[tuple(torch.triu_indices(len(points), len(points), 1, device=points.device))]",
    "LA.svdvals(h.T)": "torch.linalg.svd(h.T, full_matrices=False).S",
    # Arguments by name, or by position where the entry names them.
    "torch.linalg.matrix_norm(w, 2)": "torch.linalg.svd(w, full_matrices=False).S[..., 0]",
    "torch.take(input=x, index=i)": None,
    "torch.take(scores, index=i)": "scores.flatten()[i]",
    # A tuple or a number decides between two entries.
    "nn.functional.adaptive_avg_pool3d(x, 2)": "F.avg_pool3d(x, [n // 2 for n in x.shape[-3:]])",
    "F.adaptive_avg_pool3d(x, (1, 2, 4))": "F.avg_pool3d(x, (x.shape[-3] // 1, x.shape[-2] // 2, x.shape[-1] // 4))",
    # A name of the program's own is not caught by one that the equivalent binds.
    "F.adaptive_avg_pool3d(x, n)": "F.avg_pool3d(x, [n_ // n for n_ in x.shape[-3:]])",
    "torch.linalg.lstsq(r, q).solution": "q_, r_ = torch.linalg.qr(r); torch.linalg.solve_triangular(r_, q_.mT @ q, upper=True)",
    # Another call, or one with an argument that the entry says nothing of.
    "torch.poisson(rate, generator=g)": None,
    "torch.heaviside(x, *rest)": None,
    "torch.add(x, y)": None,
}  # fmt: skip


@pytest.mark.parametrize("name", ["take", "aten::take", "aten::take.out", "take.out"])
def test_an_operator_is_found_as_an_error_names_it(name: str) -> None:
    assert [entry.write for entry in instead.of(name)] == ["x.flatten()[index]"]


def test_what_stays_on_the_device_comes_first() -> None:
    found = [entry.through_cpu for entry in instead.of("_linalg_eigh")]

    assert instead.of("no_such_operator") == ()
    assert found == sorted(found)


def test_a_gradient_alone_is_no_reason_to_write_the_call_another_way() -> None:
    assert words("torch.linalg.solve(a, b)") is None


def test_it_is_json() -> None:
    assert instead.of("take")[0].to_json() == {
        "in_place_of": "x.take(index)",
        "write": "x.flatten()[index]",
        "note": "",
        "backward": False,
        "through_cpu": False,
    }


def test_it_loads_without_torch() -> None:
    code = "import sys, wherry.ops.instead as i; i.of('take'); sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
