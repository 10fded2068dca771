"""Operators that a device has no kernel for: the real text, or the way through the CPU with its line and its bytes.

Which they are is another matter (tests/ops); here the release that the tests are developed with is 2.13.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from wherry import backends
from wherry.errors import BadVariable
from wherry.ops import catalog
from wherry.ops.catalog import Standing
from wherry.rehearse import rehearse
from wherry.rehearse.fallback import is_asked_for

VARIABLE = "PYTORCH_ENABLE_MPS_FALLBACK"
ON_MPS = (
    "The operator '{name}' is not currently implemented for the MPS device. If you want this op to be considered for addition "
    "please comment on https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in missing op as "
    "well as commit hash {commit}. As a temporary fix, you can set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to "
    "use the CPU as a fallback for this op. WARNING: this will be slower than running natively on MPS."
)


def on(device: str, *sizes: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(*sizes, generator=generator) + 0.5).to(device)


def long(device: str, *values: int) -> Tensor:
    return torch.tensor(values, device=device)


def spd(device: str) -> Tensor:
    x = on(device, 3, 3)
    return x @ x.T + torch.eye(3, device=device)


def ctc(d: str) -> Tensor:
    return F.ctc_loss(on(d, 5, 2, 4).log_softmax(-1), torch.ones(2, 3, dtype=torch.long, device=d), (5, 5), (3, 3))


# What it is called by the device, and how many bytes cross: float32 is 4, int64 is 8 bytes.
LACKED: dict[str, tuple[str, Callable[[str], Any], int]] = {
    "loss of sequences": ("aten::_ctc_loss", ctc, 40 * 4 + 6 * 8 + (2 + 2 * 5 * 7) * 4),
    "loss with a margin": (
        "aten::multi_margin_loss", lambda d: F.multi_margin_loss(on(d, 2, 3), long(d, 0, 1)), 6 * 4 + 2 * 8 + 4,
    ),
    "pooling in three dimensions": (
        "aten::_adaptive_avg_pool3d", lambda d: F.adaptive_avg_pool3d(on(d, 1, 1, 4, 4, 4), 2), 64 * 4 + 8 * 4,
    ),
    "indexing": ("aten::take", lambda d: on(d, 2, 3).take(long(d, 0, 5)), 6 * 4 + 2 * 8 + 2 * 4),
    "writing by index": (
        "aten::put_", lambda d: on(d, 2, 3).put_(long(d, 0), on(d, 1)), 6 * 4 + 8 + 4 + 6 * 4,
    ),
    "eigenvalues": ("aten::_linalg_eigh.eigenvalues", lambda d: torch.linalg.eigh(spd(d)), 9 * 4 + 12 * 4 * 2),
    "matrix function": ("aten::linalg_matrix_exp", lambda d: torch.linalg.matrix_exp(on(d, 2, 2)), 4 * 4 * 2),
    "solution of a system": (
        "aten::linalg_lu_solve.out",
        lambda d: torch.linalg.lu_solve(*torch.linalg.lu_factor(spd(d)), on(d, 3, 1)),
        9 * 4 + 3 * 4 + 3 * 4 + 3 * 4 * 2,
    ),
    "random numbers": ("aten::poisson", lambda d: torch.poisson(on(d, 4)), 4 * 4 * 2),
    "special function": ("aten::special_ndtri.out", lambda d: torch.special.ndtri(on(d, 4) / 4), 4 * 4 + 4 * 4 * 2),
    "factory": ("aten::logspace.out", lambda d: torch.logspace(0, 1, 5, device=d), 5 * 4 * 2),
    "statistics": ("aten::mode", lambda d: on(d, 2, 3).mode(), 6 * 4 + 2 * 4 + 2 * 8),
    "elementwise": (
        "aten::heaviside.out", lambda d: torch.heaviside(on(d, 3), on(d, 3)), 6 * 4 + 3 * 4 * 2,
    ),
    "parts of a number": ("aten::frexp.Tensor_out", lambda d: torch.frexp(on(d, 3)), 3 * 4 + 6 * 4 * 2),
    "shuffling": (
        "aten::channel_shuffle", lambda d: F.channel_shuffle(on(d, 1, 4, 2, 2), 2), 16 * 4 * 2,
    ),
    "quantizing": (
        "aten::fake_quantize_per_tensor_affine_cachemask",
        lambda d: torch.fake_quantize_per_tensor_affine(on(d, 4), 0.1, 0, 0, 255),
        4 * 4 * 2 + 4,
    ),
}  # fmt: skip


def lacked(name: str) -> str:
    """The name of a missing operator; skips where this torch has a kernel for it."""
    operator = LACKED[name][0]
    if catalog.support(operator, backends.find("mps")).standing is not Standing.MISSING:
        pytest.skip(f"torch {torch.__version__} has a kernel for {operator}")
    return operator


@pytest.mark.parametrize("name", LACKED)
def test_operator_without_a_kernel_fails_in_the_words_of_mps(name: str) -> None:
    operator = lacked(name)

    with rehearse("mps", fallback=False) as rehearsal, pytest.raises(NotImplementedError) as caught:
        LACKED[name][1]("mps")

    assert str(caught.value) == ON_MPS.format(name=operator, commit=torch.version.git_version)
    assert rehearsal.statistics().fallbacks == ()


@pytest.mark.parametrize("name", LACKED)
def test_operator_without_a_kernel_goes_through_the_cpu_where_that_is_asked_for(name: str) -> None:
    operator, call, nbytes = lacked(name), *LACKED[name][1:]
    line = call.__code__.co_firstlineno

    with rehearse("mps", fallback=True) as rehearsal, pytest.warns(UserWarning, match="fall back") as warned:
        result = call("mps")
    plain = call("cpu")

    results = result if isinstance(result, tuple) else (result,)
    plains = plain if isinstance(plain, tuple) else (plain,)
    with rehearsal:
        assert {part.device.type for part in results} == {"mps"}
        if operator != "aten::poisson":
            assert all(torch.equal(a.cpu(), b) for a, b in zip(results, plains, strict=True))
    (use,) = rehearsal.statistics().fallbacks
    assert (use.operator, use.file, use.count, use.nbytes) == (operator, __file__, 1, nbytes)
    assert line <= use.line <= line + 4
    assert [str(w.message).partition(". ")[0] for w in warned] == [
        f"The operator '{operator}' is not currently supported on the MPS backend and will fall back to run on the CPU"
    ]


def test_gradient_of_what_falls_back_falls_back(recwarn: pytest.WarningsRecorder) -> None:
    lacked("loss of sequences")
    with rehearse("mps", fallback=True) as rehearsal:
        x = on("mps", 5, 2, 4).requires_grad_()
        targets = torch.ones(2, 3, dtype=torch.long, device="mps")
        F.ctc_loss(x.log_softmax(-1), targets, (5, 5), (3, 3)).backward()

        assert x.grad is not None
        assert x.grad.device.type == "mps"

    assert {use.operator for use in rehearsal.statistics().fallbacks} == {
        "aten::_ctc_loss", "aten::_ctc_loss_backward"
    }  # fmt: skip


def test_only_the_first_fallback_of_a_process_warns() -> None:
    def program() -> None:
        for _ in range(3):
            on("mps", 3).take(long("mps", 0))
        on("mps", 3).mode()

    with rehearse("mps", fallback=True), pytest.warns(UserWarning, match="take") as warned:
        program()

    assert len(warned) == 1


def test_lines_are_counted_apart_and_the_same_line_together() -> None:
    with rehearse("mps", fallback=True) as rehearsal, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = on("mps", 3)
        for _ in range(3):
            x.take(long("mps", 0))
        x.take(long("mps", 0, 1))

    first, second = rehearsal.statistics().fallbacks
    assert (first.count, first.nbytes) == (3, 3 * (12 + 8 + 4))
    assert (second.count, second.nbytes) == (1, 12 + 16 + 8)
    assert second.line == first.line + 1


def test_operator_that_always_falls_back_needs_no_variable() -> None:
    if catalog.support("linalg_svd", backends.find("mps")).standing is not Standing.FALLS_BACK:
        pytest.skip("this torch has a kernel for it")
    with rehearse("mps", fallback=False) as rehearsal, pytest.warns(UserWarning, match="'aten::linalg_svd'"):
        u, _, _ = torch.linalg.svd(on("mps", 3, 2))

    with rehearsal:
        assert u.device.type == "mps"
    (use,) = rehearsal.statistics().fallbacks
    assert (use.operator, use.nbytes) == ("aten::linalg_svd", (6 + 9 + 2 + 4) * 4)


def test_what_calls_a_part_of_it_does_not_fall_back() -> None:
    if catalog.support("_linalg_svd", backends.find("mps")).standing is not Standing.MISSING:
        pytest.skip("this torch has a kernel for it")
    with rehearse("mps", fallback=False), pytest.raises(NotImplementedError, match="'aten::_linalg_svd.U'"):
        torch.linalg.svdvals(on("mps", 3, 2))


@pytest.mark.parametrize(
    ("hermitian", "operator"), [(False, "aten::linalg_svd"), (True, "aten::_linalg_eigh.eigenvalues")]
)
def test_composite_operator_is_taken_apart_where_its_parts_fall_back(hermitian: bool, operator: str) -> None:
    if catalog.support(operator, backends.find("mps")).standing not in (Standing.MISSING, Standing.FALLS_BACK):
        pytest.skip("this torch has a kernel for it")
    with rehearse("mps", fallback=True) as rehearsal:
        x = spd("mps")
        inverse = torch.linalg.pinv(x, hermitian=hermitian)

        assert inverse.device.type == "mps"
        assert torch.allclose((inverse @ x).cpu(), torch.eye(3), atol=1e-4)

    assert [use.operator for use in rehearsal.statistics().fallbacks] == [operator]


def test_host_tensors_need_no_kernel_of_the_device() -> None:
    with rehearse("mps", fallback=False) as rehearsal:
        assert on("cpu", 3).take(long("cpu", 0)).device.type == "cpu"
        assert torch.logspace(0, 1, 3).device.type == "cpu"

    assert rehearsal.statistics().fallbacks == ()


def test_float64_is_refused_before_the_kernel_is_missed() -> None:
    with rehearse("mps", fallback=False), pytest.raises(TypeError, match="Cannot convert a MPS Tensor to float64"):
        torch.logspace(0, 1, 3, dtype=torch.float64, device="mps")


def test_operands_anywhere_go_through_the_cpu_of_mps_together() -> None:
    with rehearse("mps", fallback=True):
        assert on("mps", 3).take(long("cpu", 0)).device.type == "mps"


# Other devices


def test_operator_without_a_kernel_on_cuda_fails_in_the_words_of_the_dispatcher() -> None:
    text = "Could not run 'aten::histogram.bin_ct' with arguments from the 'CUDA' backend"
    with rehearse("cuda", fallback=True), pytest.raises(NotImplementedError, match=text):
        torch.histogram(on("cuda", 4), 2)


@pytest.mark.parametrize("backend", ["cuda", "rocm"])
def test_operator_that_mps_lacks_runs_where_it_has_a_kernel(backend: str) -> None:
    with rehearse(backend) as rehearsal:
        assert on("cuda", 3).take(long("cuda", 0)).device.type == "cuda"
        torch.linalg.svdvals(on("cuda", 3, 2))

    assert rehearsal.statistics().fallbacks == ()


def test_xpu_falls_back_by_itself_and_warns_without_a_name() -> None:
    operator = "aten::_linalg_eigh.eigenvalues"
    if catalog.support(operator, backends.find("xpu")).standing is not Standing.FALLS_BACK:
        pytest.skip("this torch does otherwise")
    with (
        rehearse("xpu", fallback=False) as rehearsal,
        pytest.warns(UserWarning, match="Aten Op fallback from XPU to CPU"),
    ):
        assert torch.linalg.eigh(spd("xpu"))[0].device.type == "xpu"

    assert [use.operator for use in rehearsal.statistics().fallbacks] == [operator]


def test_fallback_of_xpu_wants_its_operands_on_one_device() -> None:
    if not any(span.holds(torch.__version__) for span in backends.find("xpu").kernels.one_device.values()):
        pytest.skip(f"the fallback of XPU compares no devices in torch {torch.__version__}")
    with rehearse("xpu"), pytest.raises(RuntimeError, match=r"found at least two devices, .*\(Operator aten::"):
        torch.linalg.lstsq(on("xpu", 3, 3), on("cpu", 3, 1))


# Limits of a kernel


@pytest.mark.parametrize(
    ("size", "wanted", "said"),
    [
        ((7, 7), (3, 3), "input sizes must be divisible by output sizes"),
        ((8, 6), (4, 4), "input sizes must be divisible by output sizes"),
        ((2, 2), (3, 3), "output sizes must be divisible by input sizes"),
        ((8, 2), (4, 4), "Input height and width must both be greater than"),
    ],
)
def test_average_that_mps_cannot_pool(size: tuple[int, int], wanted: tuple[int, int], said: str) -> None:
    with rehearse("mps", fallback=True), pytest.raises(RuntimeError, match=f"^Adaptive pool MPS: {said}"):
        F.adaptive_avg_pool2d(on("mps", 1, 1, *size), wanted)


@pytest.mark.parametrize(("size", "wanted"), [((8, 6), (4, 3)), ((2, 2), (4, 4)), ((7, 5), (1, 1)), ((3, 3), (3, 3))])
def test_average_that_mps_can_pool(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    with rehearse("mps"):
        pooled = F.adaptive_avg_pool2d(on("mps", 1, 1, *size).requires_grad_(), wanted)
        pooled.sum().backward()

        assert tuple(pooled.shape[-2:]) == wanted


@pytest.mark.parametrize("device", ["cuda", "xpu", "cpu"])
def test_average_of_other_devices_may_overlap(device: str) -> None:
    with rehearse(device):
        assert F.adaptive_avg_pool2d(on(device, 1, 1, 7, 7), 3).shape[-1] == 3


def test_one_dimension_is_pooled_as_two_are() -> None:
    with rehearse("mps"), pytest.raises(RuntimeError, match="^Adaptive pool MPS"):
        F.adaptive_avg_pool1d(on("mps", 1, 1, 7), 3)


def test_transposed_convolution_in_half_precision_and_three_dimensions() -> None:
    x, w = on("cpu", 1, 1, 3, 3, 3).half(), on("cpu", 1, 1, 2, 2, 2).half()
    with (
        rehearse("mps"),
        pytest.raises(RuntimeError, match="ConvTranspose 3D with BF16 or FP16 types is not supported"),
    ):
        F.conv_transpose3d(x.to("mps"), w.to("mps"))


# The environment variable


@pytest.mark.parametrize(
    ("value", "asked"), [("1", True), ("0", False), (" 2", True), ("-1", True), ("1x", True), (None, False)]
)
def test_variable_is_read_as_a_number(value: str | None, asked: bool) -> None:
    environ = {} if value is None else {VARIABLE: value}

    assert is_asked_for(backends.find("mps"), environ) is asked


def test_variable_without_a_number_is_refused() -> None:
    with pytest.raises(BadVariable, match=f'^{VARIABLE} is "true", which is no number') as caught:
        is_asked_for(backends.find("mps"), {VARIABLE: "true"})

    assert caught.value.variable == VARIABLE


def test_backend_without_a_variable_is_not_asked() -> None:
    assert not is_asked_for(backends.find("cuda"), {VARIABLE: "1"})


PROGRAM = """
import os
{before}
import torch
{after}
x = torch.ones(3, device="mps")
print(x.take(torch.tensor([0], device="mps")).item())
"""
SET = f"os.environ['{VARIABLE}'] = '1'"


def run(tmp_path: Path, *, before: str = "", after: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM).format(before=before, after=after), encoding="utf-8")
    argv = [sys.executable, "-m", "wherry", "run", "--on", "mps", "--virtual", str(script)]
    clean = {name: value for name, value in __import__("os").environ.items() if name != VARIABLE}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=clean | environ)


@pytest.mark.slow
def test_variable_counts_if_it_is_set_before_torch_is_imported(tmp_path: Path) -> None:
    done = run(tmp_path, before=SET)

    assert (done.returncode, done.stdout) == (0, "1.0\n")
    assert "1 operator falls back, 24 B across" in done.stderr


@pytest.mark.slow
def test_variable_does_not_count_if_it_is_set_after_torch_is_imported(tmp_path: Path) -> None:
    done = run(tmp_path, after=SET)

    assert done.returncode == 1
    assert "NotImplementedError: The operator 'aten::take' is not currently implemented" in done.stderr


@pytest.mark.slow
def test_variable_that_is_no_number_ends_the_program_where_it_imports_torch(tmp_path: Path) -> None:
    done = run(tmp_path, **{VARIABLE: "yes"})

    assert done.returncode == 1
    assert f'wherry: {VARIABLE} is "yes", which is no number.' in done.stderr
