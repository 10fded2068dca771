"""Which dtypes a backend's kernel refuses, by overload."""

from __future__ import annotations

import pytest

from wherry import backends
from wherry.ops import catalog

CUDA, ROCM = backends.find("cuda"), backends.find("rocm")


@pytest.mark.parametrize(
    "operator", ["aten::mm", "mm", "mm.out", "aten::addmm_", "addmm.out"], ids=lambda name: name.replace("::", "_")
)
def test_form_of_an_operator_has_its_limits(operator: str) -> None:
    limits = catalog.limits(operator, CUDA)

    assert limits["int64"] == "\"addmm_cuda\" not implemented for 'Long'"
    assert "float32" not in limits


def test_limit_that_hangs_on_an_argument_says_so() -> None:
    limits = catalog.limits("scatter_.reduce", CUDA)

    assert limits["bool"] == "\"cuda_scatter_gather_base_kernel_func\" not implemented for 'Bool' (for some arguments)"


def test_other_overloads_of_an_operator_have_none() -> None:
    assert catalog.limits("scatter.src", CUDA) == {}


def test_usual_kernel_of_several_is_named() -> None:
    assert catalog.limits("convolution", CUDA)["int64"] == "getCudnnDataTypeFromScalarType() not supported for Long"
    assert catalog.limits("convolution", ROCM)["int64"] == "\"slow_conv2d_cuda\" not implemented for 'Long'"


@pytest.mark.parametrize("backend", ["cpu", "mps", "xpu"])
def test_backend_of_which_nothing_is_known_has_none(backend: str) -> None:
    assert catalog.limits("mm", backends.find(backend)) == {}
