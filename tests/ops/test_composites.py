"""Explicitly composite operators call nothing that a device lacks, apart from overloads of their own and what is known.

A rehearsal sees operators below autograd, where implicitly composite ones are taken apart and explicitly composite ones are
not. Of those, the catalog answers for what calls another overload of its own (`put` is made of `put_`), and `MADE_OF` names
the rest, which a rehearsal takes apart.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import wherry
from wherry.ops.catalog import MADE_OF
from wherry.ops.catalog import _packet as own


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="MADE_OF was read off torch 2.13")
def test_explicit_composites_call_nothing_that_is_lacking(derived: Any) -> None:
    found = {(caller, called) for caller, called in derived.edges if own(caller) != own(called)}

    assert found == {
        (caller.removeprefix("aten::"), called)
        for caller, parts in MADE_OF.items() if not caller.endswith(".out")  # the database calls none with `out=`
        for called in parts
    }  # fmt: skip


def test_a_rehearsal_takes_apart_what_is_made_of_others() -> None:
    with wherry.rehearse("xpu") as rehearsal:
        factor, out = torch.eye(3, device="xpu"), torch.empty(3, 3, device="xpu")
        torch.cholesky_solve(factor, factor)
        torch.cholesky_solve(factor, factor, out=out)

        assert {each.operator for each in rehearsal.fallbacks.uses()} == {"aten::_cholesky_solve_helper"}
        assert str(out.device) == "xpu:0"
