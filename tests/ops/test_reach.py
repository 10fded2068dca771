"""What composite operators reach: as the database shows it, and as a rehearsal fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import wherry
from wherry import backends
from wherry.ops import catalog, reach

MPS, XPU, CUDA = (backends.find(name) for name in ("mps", "xpu", "cuda"))


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the table was made with torch 2.13")
def test_the_table_is_what_the_script_prints(reach_script: ModuleType, derived: Any) -> None:
    assert reach_script.table(derived) == reach.TABLE.strip()


WAYS = [way for reached in reach._table().values() for way in (reached.forward, reached.backward)]


@pytest.mark.parametrize("overload", sorted({overload for way in WAYS for route in way.routes for overload in route}))
def test_the_catalog_knows_what_is_in_the_table(overload: str) -> None:
    assert catalog.support(overload, MPS).evidence is not catalog.Evidence.NONE


def matrix() -> torch.Tensor:
    return torch.eye(3, device="mps", requires_grad=True)


def video() -> torch.Tensor:
    return torch.ones(1, 1, 4, 4, 4, device="mps", requires_grad=True)


def ctc() -> torch.Tensor:
    scores = torch.zeros(5, 2, 4, device="mps").log_softmax(-1)
    return F.ctc_loss(scores, torch.ones(2, 3, device="mps").long(), torch.full((2,), 5), torch.full((2,), 3))


FORWARD: dict[str, Callable[[], Any]] = {
    "ctc_loss": ctc,
    "linalg_svdvals": lambda: torch.linalg.svdvals(matrix()),
    "linalg_matrix_norm": lambda: torch.linalg.matrix_norm(matrix(), 2),
    "linalg_eigvalsh": lambda: torch.linalg.eigvalsh(matrix()),
    "adaptive_avg_pool3d": lambda: F.adaptive_avg_pool3d(video(), 2),
    "interpolate": lambda: F.interpolate(video(), size=2, mode="area"),
    "pdist": lambda: F.pdist(matrix()),
    "to_sparse_csr": lambda: torch.eye(3, device="mps").to_sparse_csr(),
}
BACKWARD: dict[str, Callable[[], torch.Tensor]] = {
    "linalg_solve": lambda: torch.linalg.solve(matrix(), matrix()),
    "linalg_det": lambda: torch.linalg.det(matrix()),
    "logdet": lambda: torch.logdet(matrix()),
}


@pytest.mark.parametrize("operator", FORWARD)
def test_a_rehearsal_fails_for_what_is_reached(operator: str) -> None:
    with wherry.rehearse("mps", fallback=False), pytest.raises(NotImplementedError) as caught:
        FORWARD[operator]()

    assert any(f"'{each.named}'" in str(caught.value) for each in reach.lacking(operator, MPS).forward)


@pytest.mark.parametrize("operator", BACKWARD)
def test_a_backward_pass_fails_for_what_it_reaches(operator: str) -> None:
    with wherry.rehearse("mps", fallback=False):
        out = BACKWARD[operator]()
        with pytest.raises(NotImplementedError) as caught:
            out.sum().backward()

    assert reach.lacking(operator, MPS).forward == ()
    assert any(f"'{each.named}'" in str(caught.value) for each in reach.lacking(operator, MPS).backward)


def test_what_falls_back_as_a_whole_is_not_taken_apart() -> None:
    """`linalg_pinv` calls `linalg_svd`, which calls `_linalg_svd`."""
    assert {each.operator for each in reach.lacking("pinverse", MPS).forward} == {"aten::linalg_svd"}
    assert {each.operator for each in reach.lacking("pinverse", XPU).forward} == {"aten::_linalg_svd"}
    assert reach.lacking("pinverse", CUDA).forward == ()


def test_some_calls_are_not_all() -> None:
    assert not reach.lacking("norm", MPS).always
    assert reach.lacking("linalg_svdvals", MPS).always


def test_an_operator_that_reaches_nothing() -> None:
    assert reach.calls("add") == reach.Reached()
    assert reach.lacking("add", MPS).forward == ()


def test_whose_gradient_needs_it() -> None:
    assert "linalg_det" in reach.needed_by("aten::linalg_lu_solve.out", backward=True)
    assert "linalg_det" not in reach.needed_by("linalg_lu_solve")
    assert reach.needed_by("_ctc_loss") == ("ctc_loss",)


def test_the_table_loads_without_torch() -> None:
    code = "import sys, wherry.ops.reach as r; r.calls('norm'); sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
