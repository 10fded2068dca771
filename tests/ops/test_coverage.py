"""Operators are found as users write them, and what a program used is told apart by what a backend lacks."""

from __future__ import annotations

import pytest
import torch

from wherry import backends
from wherry.errors import UnknownOperator
from wherry.events import Use
from wherry.ops import coverage
from wherry.ops.catalog import Standing

MPS = backends.find("mps")
only_2_13 = pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the operators that 2.13 lacks")


@pytest.mark.parametrize(
    ("written", "operator"),
    [
        ("take", "take"),
        ("torch.take", "take"),
        ("Tensor.take", "take"),
        ("aten::take", "take"),
        ("torch.ops.aten.take", "take"),
        ("take.out", "take"),
        ("put_", "put_"),
        ("linalg.svd", "linalg_svd"),
        ("torch.linalg.svd", "linalg_svd"),
        ("aten::linalg_svd.U", "linalg_svd"),
        ("F.ctc_loss", "ctc_loss"),
        ("torch.nn.functional.ctc_loss", "ctc_loss"),
        ("nn.CTCLoss", "ctc_loss"),
        ("nn.AdaptiveAvgPool3d", "adaptive_avg_pool3d"),
        ("Conv2d", "conv2d"),
        ("fft.rfft", "fft_rfft"),
        ("special.ndtri", "special_ndtri"),
        ("__and__", "__and__"),
        ("_ctc_loss", "_ctc_loss"),
        ("index_put_impl_", "_index_put_impl_"),
    ],
)
def test_operator_is_found_as_users_write_it(written: str, operator: str) -> None:
    assert coverage.look_up([written]) == (operator,)


def test_wildcards_find_every_operator_that_matches_once() -> None:
    found = coverage.look_up(["linalg.lu*", "linalg_lu_solve"])

    assert found == ("linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu", "linalg_lu_solve")


@pytest.mark.parametrize(("written", "near"), [("tkae", "take"), ("linalg.sdv", "linalg_svd"), ("nn.Conv9d", "conv3d")])
def test_typo_is_told_what_is_near(written: str, near: str) -> None:
    with pytest.raises(UnknownOperator, match=f'^no operator is called "{written}". Did you mean') as caught:
        coverage.look_up([written])

    assert near in caught.value.near


def test_pattern_that_matches_nothing_is_no_answer() -> None:
    with pytest.raises(UnknownOperator, match='^no operator matches "zz'):
        coverage.look_up(["zz*"])


@only_2_13
@pytest.mark.parametrize(
    ("operator", "backend", "standing"),
    [
        ("conv2d", "mps", Standing.COMPOSITE),
        ("std", "mps", Standing.KERNEL),  # although std.correction_out is missing
        ("take", "mps", Standing.MISSING),
        ("ctc_loss", "mps", Standing.MISSING),  # made of what is
        ("linalg_svdvals", "mps", Standing.MISSING),
        ("linalg_svd", "mps", Standing.FALLS_BACK),
        ("linalg_pinv", "cuda", Standing.COMPOSITE),
        ("histogram", "cuda", Standing.MISSING),
        ("linalg_eigh", "xpu", Standing.FALLS_BACK),
        ("cudnn_convolution", "mps", Standing.FOREIGN),
    ],
)
def test_operator_stands_as_what_it_is_made_of(operator: str, backend: str, standing: Standing) -> None:
    assert coverage.entry(operator, backends.find(backend)).standing is standing


@only_2_13
def test_overload_that_stands_worse_is_told_apart() -> None:
    assert "aten::std.correction_out" in {each.operator for each in coverage.entry("std", MPS).others}


@only_2_13
def test_gradient_that_needs_more_than_the_operator_is_told() -> None:
    found = coverage.entry("linalg_solve", MPS)

    assert found.standing is not Standing.MISSING
    assert "aten::linalg_lu_solve.out" in {each.named for each in found.calls_backward}


@only_2_13
def test_what_is_lacked_has_an_equivalent_and_what_is_not_has_none() -> None:
    assert coverage.entry("take", MPS).instead[0].write == "x.flatten()[index]"
    assert coverage.entry("take", backends.find("cuda")).instead == ()


@pytest.mark.parametrize("backend", [backend.name for backend in backends.all()])
def test_every_operator_has_an_entry(backend: str) -> None:
    found = [coverage.entry(operator, backends.find(backend)) for operator in coverage.operators()]

    assert len({entry.operator for entry in found}) == len(coverage.operators())
    assert all(entry.standing is not Standing.UNKNOWN for entry in found)


def use(operator: str, line: int, *, count: int = 1, nbytes: int = 0) -> Use:
    return Use(operator, "train.py", line, count, nbytes)


USED = (
    use("aten::add.Tensor", 1, count=100),
    use("aten::take", 2, count=3, nbytes=30),
    use("aten::take", 3, count=5, nbytes=50),
    use("aten::linalg_svd", 4, count=9, nbytes=9),
    use("aten::_ctc_loss", 5, nbytes=7),
    use("elsewhere::kernel", 6),
)


@only_2_13
def test_what_a_program_used_and_a_backend_lacks_with_its_lines() -> None:
    found = coverage.of_uses(USED, MPS)

    assert (found.operators, found.calls, found.runs) == (5, 119, False)
    assert [(lack.support.operator, lack.count, lack.nbytes) for lack in found.lacks] == [
        ("aten::take", 8, 80),
        ("aten::_ctc_loss", 1, 7),
        ("aten::linalg_svd", 9, 9),  # it goes through the CPU: after what raises
    ]
    assert [each.line for each in found.lacks[0].uses] == [3, 2]
    assert found.unknown == ("elsewhere::kernel",)


def test_backend_that_has_all_lacks_nothing() -> None:
    found = coverage.of_uses(USED, backends.find("cuda"))

    assert found.runs
    assert found.lacks == ()


@only_2_13
def test_coverage_as_json() -> None:
    found = coverage.of_uses(USED[:2], MPS).to_json()

    assert found["lacks"] == [
        {
            "operator": "aten::take",
            "backend": "mps",
            "standing": "missing",
            "evidence": "native_functions.yaml",
            "named": "aten::take",
            "count": 3,
            "nbytes": 30,
            "uses": [{"operator": "aten::take", "file": "train.py", "line": 2, "count": 3, "nbytes": 30}],
            "instead": [each.to_json() for each in coverage.entry("take", MPS).instead],
        }
    ]
