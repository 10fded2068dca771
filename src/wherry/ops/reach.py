"""Which kernels an operator calls in the end, of those that some backend lacks: why `ctc_loss` fails, which is composite.

`calls("linalg_solve")` answers with overloads, forward and backward apart; `lacking("linalg_solve", backend)` with those that
the backend lacks with the torch that is installed, as the catalog has it. What surprises:

- Often only some calls need one: `norm` singular values for two of its orders, `interpolate` a pooling in three dimensions.
  Then `always` is false.
- An operator on the way may have a kernel, or go through the CPU as a whole, and then what it is made of is never called:
  `linalg_pinv` calls `linalg_svd`, which falls back on MPS, and so not `_linalg_svd`, which is missing there.

The table is printed by scripts/reach.py, which runs PyTorch's database of operators and takes composite ones apart. It was
made with torch 2.13; what another release has more of such operators, it does not show.
"""

# ruff: noqa: E501 - a line of the table is a row

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from wherry.ops.instead import packet

if TYPE_CHECKING:
    from wherry.backends import Backend
    from wherry.ops.catalog import Support

Route = tuple[str, ...]
"""Overloads from the outside in. The last is lacking somewhere; those before it are not taken apart everywhere."""


@dataclass(frozen=True, slots=True)
class Way:
    """What one direction of an operator reaches.

    Attributes:
        routes: The ways to overloads that some backend lacks.
        always: Whether every call takes one of them.
    """

    routes: tuple[Route, ...] = ()
    always: bool = True

    @property
    def overloads(self) -> tuple[str, ...]:
        """The overloads at the ends, without namespace: "linalg_lu_solve"."""
        return tuple(dict.fromkeys(route[-1] for route in self.routes))


@dataclass(frozen=True, slots=True)
class Reached:
    """What an operator reaches when it is called, and what its backward pass does beyond that."""

    forward: Way = Way()
    backward: Way = Way()


@dataclass(frozen=True, slots=True)
class Lacking:
    """What an operator reaches that a backend lacks: missing there, or sent through the CPU."""

    forward: tuple[Support, ...]
    backward: tuple[Support, ...]
    always: bool
    """Whether every forward call reaches one of `forward`."""


def calls(operator: str) -> Reached:
    """Which overloads an operator calls in the end, of those that some backend lacks.

    >>> calls("ctc_loss").forward.overloads
    ('_ctc_loss', '_ctc_loss.Tensor')
    >>> calls("linalg_solve").backward.overloads
    ('linalg_lu_solve',)

    Args:
        operator: What a program calls, as the dispatcher writes it: "linalg_solve", "adaptive_avg_pool3d".
    """
    return _table().get(packet(operator), Reached())


def needed_by(overload: str, *, backward: bool = False) -> tuple[str, ...]:
    """The operators that reach an overload, or whose backward pass does.

    >>> needed_by("aten::_pdist_backward", backward=True)
    ('pdist',)
    """
    wanted = packet(overload)
    return tuple(
        name for name, found in _table().items()
        if any(packet(each) == wanted for each in (found.backward if backward else found.forward).overloads)
    )  # fmt: skip


def lacking(operator: str, backend: Backend) -> Lacking:
    """What an operator reaches that a backend lacks with the torch that is installed."""
    found = calls(operator)
    forward, backward = (
        tuple(dict.fromkeys(support for route in way.routes for support in _on(route, backend)))
        for way in (found.forward, found.backward)
    )
    return Lacking(forward, backward, found.forward.always)


def _on(route: Route, backend: Backend) -> Iterator[Support]:
    """The first on a route that the backend lacks, if nothing before it has a kernel there."""
    from wherry.ops.catalog import LACKING, Standing, support

    for overload in route:
        found = support(overload, backend)
        if found.standing in LACKING:
            yield found
        if found.standing is not Standing.COMPOSITE:
            return


@cache
def _table() -> dict[str, Reached]:
    found = {}
    for line in TABLE.strip().splitlines():
        names, forward, backward = (part.strip() for part in line.split("|"))
        found.update(dict.fromkeys(names.split(), Reached(_way(forward), _way(backward))))
    return found


def _way(text: str) -> Way:
    routes = tuple(tuple(each.split(">")) for each in text.removeprefix("?").split())
    return Way(routes, always=not text.startswith("?"))


TABLE = """
_upsample_bilinear2d_aa |  | _upsample_bilinear2d_aa_backward
adaptive_avg_pool3d | ? _adaptive_avg_pool3d | ? _adaptive_avg_pool3d_backward
adaptive_max_pool3d |  | adaptive_max_pool3d_backward
cholesky_solve | _cholesky_solve_helper |
ctc_loss | _ctc_loss _ctc_loss.Tensor | _ctc_loss_backward
det linalg_det |  | ? linalg_lu_solve
embedding | ? embedding_renorm_ |
fake_quantize_per_channel_affine | fake_quantize_per_channel_affine_cachemask |
fake_quantize_per_tensor_affine | fake_quantize_per_tensor_affine_cachemask |
fractional_max_pool2d |  | fractional_max_pool2d_backward
fractional_max_pool3d |  | fractional_max_pool3d_backward
histogramdd | _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors |
interpolate | ? _adaptive_avg_pool3d | ? _adaptive_avg_pool3d_backward _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa_backward
linalg_cholesky | linalg_cholesky_ex |
linalg_cond linalg_svd linalg_svdvals | _linalg_svd |
linalg_eigh linalg_eigvalsh | _linalg_eigh |
linalg_eigvals | linalg_eig |
linalg_ldl_factor | linalg_ldl_factor_ex |
linalg_lstsq |  | linalg_svd linalg_svd>_linalg_svd
linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve lu |  | lu_unpack
linalg_matrix_norm linalg_norm norm | ? _linalg_svd |
linalg_matrix_rank | ? _linalg_eigh _linalg_svd |
linalg_pinv | _linalg_eigh linalg_svd linalg_svd>_linalg_svd |
linalg_slogdet linalg_solve linalg_solve_ex linalg_tensorsolve logdet slogdet |  | linalg_lu_solve
lu_solve | linalg_lu_solve | lu_unpack
matrix_exp | linalg_matrix_exp |
multi_margin_loss |  | multi_margin_loss_backward
multilabel_margin_loss | multilabel_margin_loss_forward | multilabel_margin_loss_backward
orgqr | linalg_householder_product |
pca_lowrank svd_lowrank | linalg_qr linalg_svd linalg_svd>_linalg_svd |
pdist | _pdist_forward | _pdist_backward
pinverse svd | linalg_svd linalg_svd>_linalg_svd |
put | put_ | take
qr | linalg_qr |
rrelu | rrelu_with_noise |
segment_reduce |  | _segment_reduce_backward
take |  | put put>put_
to_sparse_bsc | _to_sparse_bsc |
to_sparse_bsr | _to_sparse_bsr |
to_sparse_csc | _to_sparse_csc |
to_sparse_csr | _to_sparse_csr |
"""
"""`operators | forward | backward`; a "?" before what not every call reaches, a ">" along a route. Printed by scripts/reach.py"""
