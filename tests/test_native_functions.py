"""What is read from native_functions.yaml is what the dispatcher of the installed torch has registered."""

from __future__ import annotations

import pytest
import torch

from wherry import native_functions
from wherry.native_functions import native, wrapper_name

HAS_KERNEL = torch._C._dispatch_has_kernel_for_dispatch_key
COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def test_every_entry_is_an_operator_of_this_torch() -> None:
    known = set(torch._C._dispatch_get_all_op_names())

    assert [name for name in native_functions.names() if f"aten::{name}" not in known] == []


def test_kernels_of_the_cpu_are_those_of_the_dispatcher() -> None:
    entries = {name: native(name) for name in native_functions.names()}

    wrong = [name for name, entry in entries.items() if "CPU" in entry.keys and not HAS_KERNEL(f"aten::{name}", "CPU")]

    assert wrong == []


@pytest.mark.parametrize("key", COMPOSITE)
def test_composite_kernels_are_those_of_the_dispatcher(key: str) -> None:
    """Where a backend has a kernel of its own the dispatcher may leave the composite one out, as for the CPU."""
    wrong = [
        name
        for name in native_functions.names()
        if not HAS_KERNEL(f"aten::{name}", "CPU")
        and HAS_KERNEL(f"aten::{name}", key) != (native(name).composite == key)
    ]

    assert wrong == []


def test_generated_overloads_are_made_of_the_one_they_name() -> None:
    made = {
        name: base
        for name, base in native_functions.generated().items()
        if native(base).composite != "CompositeImplicitAutograd"  # of those none is made, whatever the file says
    }

    assert made["poisson.out"] == "poisson"
    assert [name for name in made if not HAS_KERNEL(f"aten::{name}", "CompositeExplicitAutograd")] == []


def test_structured_overload_has_the_kernels_of_the_one_it_delegates_to() -> None:
    assert native("mm").delegate == "mm.out"
    assert {"CPU", "CUDA", "MPS"} <= native("mm").keys
    assert native("mm").composite == "CompositeExplicitAutogradNonFunctional"


@pytest.mark.parametrize(
    ("name", "composite"),
    [
        ("relu6", "CompositeImplicitAutograd"),  # no dispatch table
        ("_nested_get_values", None),  # an empty one
        ("put", "CompositeExplicitAutograd"),
        ("put_", None),
    ],
)
def test_what_an_operator_is_made_of(name: str, composite: str | None) -> None:
    assert native(name).composite == composite


def test_name_without_an_entry_has_none() -> None:
    assert native("no_such_operator") is None
    assert native("mul.Scalar_out") is None


def test_name_of_a_wrapper() -> None:
    assert wrapper_name("mm.out", key="CUDA", structured=True, has_out=True) == "wrapper_CUDA_mm_out_out"
    assert wrapper_name("index_select.out", key="CUDA", structured=False, has_out=True) == (
        "wrapper_CUDA_out_index_select_out"
    )
