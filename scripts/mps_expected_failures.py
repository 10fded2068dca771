"""How well a rehearsal foresees what fails on MPS: against the failures that PyTorch itself expects of its tests there.

    python scripts/mps_expected_failures.py

PyTorch runs the operators of its database on a Mac and lists those that it expects to fail, with the dtypes for which they
do, in torch/testing/_internal/common_mps.py. Here each of them is run in a rehearsal of MPS, in float32, on the samples
that the database makes for it. An entry is *listed* if PyTorch expects its forward pass to fail in float32 for want of an
implementation, and *foreseen* if a sample fails in the rehearsal that does not on the CPU.

Left out are the entries that are about float64 alone, which a rehearsal refuses for every operator (`FLOAT64_ALONE`), names
in the lists that no entry has, and entries that PyTorch does not run in float32. Prints precision and recall, and every
disagreement with its reason (`DISAGREEMENTS`); fails where there is one without.
"""

from __future__ import annotations

import ast
import sys
import unittest
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo

from wherry.rehearse import rehearse

LISTS = ("UNIMPLEMENTED_XFAILLIST", "ON_MPS_XFAILLIST")
"""Dictionaries in `mps_ops_modifier` of operators without an implementation: {"take": None, "to": [torch.float32]}.
Others there (UNDEFINED_XFAILLIST, SKIPLIST) are about values that differ.
"""

FLOAT64_ALONE = frozenset({"double", "cdouble", "to", "float_power", "log_softmaxwith_dtype"})

_NO_KERNEL = (
    "no release before 2.14 registers `linalg_lu_solve.out` for MPS, and the list names no reason why it would run"
)
DISAGREEMENTS: dict[str, str] = {
    "linalg.lu_solve": _NO_KERNEL,
    "lu_solve": _NO_KERNEL,
    "masked.median": "it is made of `nanmedian`, which has a kernel; what fails in it there, no table shows",
    "svd_lowrank": "it runs, and its signs differ from the CPU's: it draws random numbers, as `pca_lowrank`, which is listed "
    "for that",
}
"""Entry -> why PyTorch's list and the rehearsal do not say the same of it."""


@dataclass(frozen=True)
class Figures:
    """What came of a comparison.

    Attributes:
        listed: Entries that PyTorch expects to fail.
        foreseen: Entry -> what it fails with in a rehearsal.
    """

    listed: frozenset[str]
    foreseen: Mapping[str, str]

    @property
    def agreed(self) -> frozenset[str]:
        return self.listed & self.foreseen.keys()

    @property
    def precision(self) -> float:
        return len(self.agreed) / len(self.foreseen)

    @property
    def recall(self) -> float:
        return len(self.agreed) / len(self.listed)

    @property
    def disagreements(self) -> list[str]:
        return sorted(self.listed ^ self.foreseen.keys())


def dictionaries(source: str) -> Iterator[tuple[str, dict[str, list[str] | None]]]:
    """The lists in the source of common_mps.py: their names, and for each entry its dtypes (None: all)."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys, values=values)):
                pairs = zip(keys, values, strict=True)
                yield name, {str(k.value): _dtypes(v) for k, v in pairs if isinstance(k, ast.Constant)}
            case _:
                pass


def _dtypes(value: ast.expr) -> list[str] | None:
    """`[torch.float32]`, or None for all of them."""
    if not isinstance(value, ast.List):
        return None
    return [element.attr for element in value.elts if isinstance(element, ast.Attribute)]


def entries() -> dict[str, OpInfo]:
    """The entries that PyTorch runs in float32 on MPS, by the names of its lists."""
    return {op.name + op.variant_test_name: op for op in op_db if torch.float32 in op.supported_dtypes("mps")}


def listed() -> frozenset[str]:
    """Entries that PyTorch expects to fail on MPS in float32."""
    known = entries()
    file = Path(torch.__file__).parent / "testing/_internal/common_mps.py"
    found = {
        name
        for list_name, dtypes_of in dictionaries(file.read_text(encoding="utf-8"))
        if list_name in LISTS
        for name, dtypes in dtypes_of.items()
        if dtypes is None or "float32" in dtypes
    }
    found |= {name for name, op in known.items() if any(map(_expects_failure, op.decorators))}
    return frozenset(found & known.keys())


def _expects_failure(decorator: object) -> bool:
    """Whether a decorator of an entry says that it fails on MPS; those are beside the entry, not in the lists."""
    return (
        isinstance(decorator, DecorateInfo)
        and decorator.cls_name == "TestConsistency"  # of test/test_mps.py alone
        and decorator.test_name in (None, "test_output_match")
        and decorator.device_type in (None, "mps")
        and unittest.expectedFailure in decorator.decorators
        and (decorator.dtypes is None or torch.float32 in decorator.dtypes)
    )


def foreseen() -> dict[str, str]:
    """Entry -> the first error of a sample in a rehearsal that the CPU does not have."""
    found = {}
    for name, op in entries().items():
        error = _first_error(op)
        if error is not None:
            found[name] = error
    return found


def _first_error(op: OpInfo) -> str | None:
    on_host = _errors(op, "cpu")
    with rehearse("mps", fallback=False):
        for error, reference in zip(_errors(op, "mps"), on_host, strict=False):
            if error is not None and reference is None:
                return error
    return None


def _errors(op: OpInfo, device: str) -> Iterator[str | None]:
    torch.manual_seed(0)
    samples = iter(op.sample_inputs(device, torch.float32, requires_grad=False))
    while True:
        try:
            sample = next(samples)
            function = getattr(torch, op.name, op.op)  # the name at call time: a rehearsal replaces some
            function = function if function is not op.op and callable(function) else op.op
            function(sample.input, *sample.args, **sample.kwargs)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - whatever an operator raises is what is asked for
            yield f"{type(error).__name__}: {error}".split("\n")[0]
        else:
            yield None


def compare() -> Figures:
    """Run every entry; about a minute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Figures(listed() - FLOAT64_ALONE, {k: v for k, v in foreseen().items() if k not in FLOAT64_ALONE})


def main() -> int:
    figures = compare()
    print(f"torch {torch.__version__}: {len(figures.listed)} listed, {len(figures.foreseen)} foreseen")
    print(f"precision {figures.precision:.3f}, recall {figures.recall:.3f}, {len(figures.agreed)} agreed")
    unexplained = 0
    for name in figures.disagreements:
        which = "listed, not foreseen" if name in figures.listed else "foreseen, not listed"
        reason = DISAGREEMENTS.get(name)
        unexplained += reason is None
        print(f"  {which}: {name}: {reason or 'NO REASON GIVEN'}")
        if name in figures.foreseen:
            print(f"      {figures.foreseen[name][:140]}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
