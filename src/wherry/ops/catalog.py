"""Which operators a backend has kernels for, for the torch that is installed: `support("_ctc_loss", backend)`.

Read from three places, and every answer says which: torch's `native_functions.yaml` (`wherry.native_functions`), which shows
every kernel of CPU, CUDA and MPS; the short tables of a backend's file (`Kernels`), for what that does not show; and the
dispatcher, for operators of other libraries.

How an overload is looked up follows the dispatcher (c10/core/DispatchKeySet.h; aten/src/ATen/core/dispatch/OperatorEntry.cpp,
`computeDispatchTableEntryWithDebug`): a kernel of the key itself, then one that is made of other operators, then the
fallback of the backend. What surprises:

- A kernel that is made of others stands or falls with what it calls. Where that is another overload of the same operator,
  as for `put`, which calls `put_`, it is said here; where it is others, only running it tells (`used`, and `reach`).
- A structured operator is computed by its `out=` overload, and that is what an error names: `aten::linalg_lu_solve.out`.
- On every backend there are operators that only another one's own code calls (`cudnn_convolution`): those are `FOREIGN`.
"""

from __future__ import annotations

import enum
import importlib.metadata
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from wherry import native_functions
from wherry.backends import Backend, Kernels, Span
from wherry.errors import TorchMissing
from wherry.native_functions import Native, native


class Standing(enum.Enum):
    """What happens to an operator whose tensors are on a device."""

    KERNEL = "kernel"  # it has a kernel of its own there
    COMPOSITE = "composite"  # it is made of other operators, which are looked up in turn
    FALLS_BACK = "falls back"  # always through the CPU and back
    MISSING = "missing"  # it raises; or goes through the CPU, where a variable says so
    FOREIGN = "foreign"  # it belongs to another backend: nothing but that one's own code calls it
    UNKNOWN = "unknown"  # neither torch's tables nor the dispatcher know it


LACKING = (Standing.MISSING, Standing.FALLS_BACK)
"""Of an operator that a device has no kernel for, the worse first."""


class Evidence(enum.Enum):
    """What an answer rests on."""

    YAML = "native_functions.yaml"
    TABLE = "wherry's table"
    ASSUMED = "assumed"  # from the kernels of a backend that it takes after
    DISPATCHER = "dispatcher"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Support:
    """How one overload stands on one backend.

    Attributes:
        operator: The overload with its namespace: "aten::put".
        backend: The name of the backend.
        standing: See `Standing`.
        evidence: What that rests on.
        named: The overload that an error or a warning names, with its namespace: "aten::put_".
    """

    operator: str
    backend: str
    standing: Standing
    evidence: Evidence
    named: str

    @property
    def runs(self) -> bool | None:
        """Whether a call returns without anything being set for it; None where that is not known.

        A composite one runs if all that it is made of do.
        """
        return {Standing.MISSING: False, Standing.FOREIGN: False, Standing.UNKNOWN: None}.get(self.standing, True)

    def to_json(self) -> dict[str, object]:
        return {
            "operator": self.operator,
            "backend": self.backend,
            "standing": self.standing.value,
            "evidence": self.evidence.value,
            "named": self.named,
        }


OF_THE_HOST = re.compile("mkldnn|onednn|fbgemm|_for_cpu(_backward)?$")
"""Names of operators that the CPU's composites choose and a device's do not."""

LAYOUTS = {"strided": "", "sparse_coo": "Sparse", "sparse_csr": "SparseCsr", "quantized": "Quantized"} | {
    "nested": "NestedTensor"
}
"""What the dispatch key of a kernel starts with, by the kind of tensor that it takes."""

# These are composite for tensors of any backend, although another overload of theirs has no kernel. `narrow_copy` is a view
# and a copy; its `out=` exists on the CPU alone (aten/src/ATen/native/TensorShape.cpp).
_NOT_OF_A_SIBLING = frozenset({"narrow_copy"})


MADE_OF = {
    "aten::cholesky_solve": ("_cholesky_solve_helper",),
    "aten::cholesky_solve.out": ("_cholesky_solve_helper",),
    "aten::linalg_pinv.atol_rtol_tensor": ("_linalg_eigh", "linalg_svd"),
}
"""Explicitly composite operators that call others which some device lacks, beside other overloads of the same operator.

Whatever else is composite is taken apart above a dispatch mode, or calls what every device has (tests/ops/test_composites.py).
"""

VALUES_ONLY = frozenset(
    {
        "nuclear_norm",
        "linalg_svdvals",
        "linalg_eigvalsh",
        "linalg_norm",
        "linalg_matrix_norm",
        "linalg_cond",
        "linalg_matrix_rank",
    }
)
"""Functions that need singular values or eigenvalues without their vectors, by the `__name__` of the C function."""


def whole(operator: str, caller: Callable[[], str | None]) -> str | None:
    """The implicitly composite operator that a call is a part of, where a device may catch that before it is taken apart.

    `linalg_svd` falls back as a whole on MPS up to 2.13, whoever calls it, while `linalg_svdvals` calls `_linalg_svd` itself.

    Args:
        operator: What is called, with its namespace.
        caller: Answers with the `__name__` of the C function that the program called; asked where it matters, for it takes long.
    """
    return PARTS[operator] if operator in PARTS and caller() not in VALUES_ONLY else None


PARTS = {"aten::_linalg_svd": "aten::linalg_svd"}
"""Operators that are the whole of an implicitly composite one -> that one."""


@cache
def release() -> str:
    """The release of the torch that is installed, whose operators these are. Does not import it.

    Raises:
        TorchMissing: there is none.
    """
    version = getattr(sys.modules.get("torch"), "__version__", None)
    if version is not None:
        return str(version)
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise TorchMissing("the operators of a backend") from None


@cache
def support(operator: str, backend: Backend, layout: str = "strided") -> Support:
    """How an overload stands on a backend.

    >>> from wherry import backends
    >>> support("aten::linalg_lu_solve", backends.find("cuda")).standing
    <Standing.KERNEL: 'kernel'>

    Args:
        operator: An overload: "aten::put", or without the namespace that most have.
        backend: Which backend.
        layout: What kind of tensors it is called with, a key of `LAYOUTS`.
    """
    namespace, colons, name = operator.rpartition("::")
    if colons and namespace != "aten":
        return _of_a_library(operator, backend)
    kernels = backend.kernels or Kernels(key="CPU")
    prefix = LAYOUTS[layout]
    entry = native(name)
    if entry is None:
        base = native_functions.generated().get(name)
        if base is None:
            return _of_a_library(f"aten::{name}", backend)
        below = support(base, backend, layout)
        return replace(_same(below, name), standing=Standing.COMPOSITE) if below.runs else _same(below, name)

    def answer(standing: Standing, evidence: Evidence, named: str = name) -> Support:
        return Support(f"aten::{name}", backend.name, standing, evidence, f"aten::{named}")

    # The overload that computes a structured one, where its own kernel does nothing but call it.
    target = entry.delegate if entry.composite == _CALLS_DELEGATE else None
    if not prefix:
        if _holds(kernels.falls_back, name, target):
            return answer(Standing.FALLS_BACK, Evidence.TABLE, target or name)
        if _holds(kernels.also, name, target):
            return answer(Standing.KERNEL, Evidence.TABLE)
    lacks = not prefix and _holds(kernels.without, name, target)
    if not lacks and prefix + kernels.key in entry.keys:
        return answer(Standing.KERNEL, Evidence.YAML)
    if not lacks and _shares(kernels) and f"{prefix}{kernels.shares}" in entry.keys:
        return answer(Standing.KERNEL, Evidence.ASSUMED)
    if target is not None and not prefix:
        below = support(target, backend)
        return answer(Standing.COMPOSITE, Evidence.YAML) if below.runs else _same(below, name)
    if entry.composite in _ANY_LAYOUT if prefix else entry.composite is not None:
        below = None if prefix or name in _NOT_OF_A_SIBLING else _missing_sibling(name, entry, backend)
        return answer(Standing.COMPOSITE, Evidence.YAML) if below is None else _same(below, name)
    evidence = Evidence.TABLE if lacks else Evidence.ASSUMED if _shares(kernels) else Evidence.YAML
    if f"{prefix}CPU" in entry.keys and not OF_THE_HOST.search(name):
        return answer(Standing.MISSING, evidence)
    return answer(Standing.FOREIGN, evidence)


_CALLS_DELEGATE = "CompositeExplicitAutogradNonFunctional"
_ANY_LAYOUT = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")


def _shares(kernels: Kernels) -> bool:
    return kernels.shares is not None and kernels.shares_in.holds(release())


def _holds(table: Mapping[str, Span], *names: str | None) -> bool:
    return any(name in table and table[name].holds(release()) for name in names if name is not None)


def _same(below: Support, name: str) -> Support:
    """The answer for an overload that does nothing but call another."""
    return replace(below, operator=f"aten::{name}")


def _missing_sibling(name: str, entry: Native, backend: Backend) -> Support | None:
    """The answer for an explicitly composite overload that calls another one of its operator, which has no kernel.

    `put` is made of `put_`, `logspace` of `logspace.out`. Autograd takes the implicitly composite ones apart itself.
    """
    if entry.composite != "CompositeExplicitAutograd":
        return None
    for sibling in _siblings()[_packet(name)]:
        found = native(sibling)
        if found is not None and found.composite is None:
            below = support(sibling, backend)
            if below.standing in LACKING:
                return below
    return None


def _packet(name: str) -> str:
    """What the overloads of an operator and of its in-place form have in common: "put" for "put_", "add" for "add_.Tensor"."""
    base = name.partition(".")[0]
    return base if base.endswith("__") else base.rstrip("_")


@cache
def _siblings() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in native_functions.names():
        found.setdefault(_packet(name), []).append(name)
    return {packet: tuple(names) for packet, names in found.items()}


def _of_a_library(operator: str, backend: Backend) -> Support:
    """An operator that torch's own file does not have: what the dispatcher of this process says."""
    from wherry.dispatch import registered

    key = "CPU" if backend.kernels is None else backend.kernels.key
    keys = registered(operator, (key, "CompositeExplicitAutograd", "CompositeImplicitAutograd"))
    standing = Standing.UNKNOWN if not keys else Standing.KERNEL if key in keys else Standing.COMPOSITE
    evidence = Evidence.DISPATCHER if keys else Evidence.NONE
    return Support(operator, backend.name, standing, evidence, operator)


def limits(operator: str, backend: Backend) -> dict[str, str]:
    r"""The dtypes that a backend's kernel for an overload refuses, and in which words, where that is known.

    Nothing is known of most: an empty answer is no promise.

    >>> from wherry import backends
    >>> print(limits("aten::mm", backends.find("cuda"))["int64"])
    "addmm_cuda" not implemented for 'Long'

    Args:
        operator: An overload: "aten::mm", or without the namespace that most have.
        backend: Which backend.
    """
    found: dict[str, str] = {}
    always: set[str] = set()
    for each in () if backend.kernels is None else backend.kernels.unsupported_by(operator.removeprefix("aten::")):
        for dtype in sorted(each.dtypes):
            _, text = each.words(dtype)
            if each.when is not None:
                found.setdefault(dtype, f"{text} (for some arguments)")
            elif dtype not in always:
                found[dtype] = text
                always.add(dtype)
    return found


def is_limited(operator: str, backend: Backend) -> bool:
    """Whether a backend's kernel for an operator, or the one that it is computed by, refuses arguments that programs have."""
    known = {} if backend.kernels is None else backend.kernels.limits
    name = operator.removeprefix("aten::")
    found = [known[each] for each in (name, f"_{name}") if each in known]
    return any(limit.span.holds(release()) and not limit.seldom for limit in found)


@cache
def overloads() -> tuple[str, ...]:
    """Every overload of PyTorch's own operators that is in `native_functions.yaml`: "add.Tensor"."""
    return tuple(native_functions.names())


def summary(backend: Backend) -> dict[Standing, int]:
    """How many of `overloads()` stand how on a backend."""
    counts = dict.fromkeys(Standing, 0)
    for name in overloads():
        counts[support(name, backend).standing] += 1
    del counts[Standing.UNKNOWN]
    return counts
