"""The catalog agrees with what was read off the binaries, and says what it rests on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from wherry import backends
from wherry.ops import catalog
from wherry.ops.catalog import Evidence, Standing, support

MPS = backends.find("mps")
SEEN = json.loads((Path(__file__).parents[1] / "data" / "mps_kernels.json").read_text(encoding="utf-8"))
RELEASE = ".".join(torch.__version__.split(".")[:2])

only_2_13 = pytest.mark.skipif(RELEASE != "2.13", reason="the names were read off the binaries of torch 2.13")


def standing_on_mps(standing: Standing) -> set[str]:
    return {name for name in catalog.overloads() if support(name, MPS).standing is standing}


@only_2_13
def test_kernels_of_mps_are_the_symbols_of_the_macos_binary() -> None:
    assert standing_on_mps(Standing.KERNEL) == set(SEEN["kernels"])


@only_2_13
def test_what_falls_back_is_what_the_initializer_of_the_binary_sends_through_the_cpu() -> None:
    assert standing_on_mps(Standing.FALLS_BACK) == set(SEEN["falls_back"])


def test_number_of_kernels_is_that_of_the_macos_binary_of_this_release() -> None:
    counts = {release.rpartition(".")[0]: count for release, count in SEEN["kernels_by_release"].items()}
    if RELEASE not in counts:
        pytest.skip(f"nobody has looked into the binary of torch {RELEASE}")

    assert len(standing_on_mps(Standing.KERNEL)) == counts[RELEASE]


@only_2_13
@pytest.mark.parametrize("name", SEEN["missing"])
def test_missing_operator_is_known_and_its_error_names_what_the_device_names(name: str) -> None:
    found = support(name, MPS)

    if catalog.OF_THE_HOST.search(name):
        assert found.standing is Standing.FOREIGN
    else:
        assert found.standing is Standing.MISSING
    assert found.named == SEEN["missing"][name]


@pytest.mark.parametrize("backend", [backend.name for backend in backends.all()])
def test_every_overload_has_an_answer_on_every_backend(backend: str) -> None:
    counts = catalog.summary(backends.find(backend))

    assert sum(counts.values()) == len(catalog.overloads())
    assert counts[Standing.KERNEL] > 800
    assert (counts[Standing.MISSING] == 0) == (backend == "cpu")


@pytest.mark.parametrize(
    ("operator", "backend", "standing", "evidence"),
    [
        ("aten::add.Tensor", "mps", Standing.KERNEL, Evidence.YAML),
        ("aten::add.Tensor", "xpu", Standing.KERNEL, None),  # its own kernels are listed elsewhere up to 2.13
        ("aten::relu6", "mps", Standing.COMPOSITE, Evidence.YAML),
        ("aten::embedding_renorm_", "mps", Standing.FALLS_BACK, Evidence.TABLE),
        ("aten::put", "mps", Standing.MISSING, Evidence.YAML),  # made of put_
        ("aten::logspace.Tensor_Tensor", "mps", Standing.MISSING, Evidence.YAML),  # made of logspace.out
        ("aten::mode.values_out", "cuda", Standing.UNKNOWN, Evidence.NONE),
        ("aten::narrow_copy", "mps", Standing.COMPOSITE, Evidence.YAML),  # although narrow_copy.out is missing
        ("aten::all.dims", "mps", Standing.COMPOSITE, Evidence.YAML),  # structured, by one that is composite
        ("aten::histogram.bin_ct", "cuda", Standing.MISSING, Evidence.YAML),
        ("aten::cudnn_convolution", "mps", Standing.FOREIGN, Evidence.YAML),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "cuda", Standing.FOREIGN, Evidence.YAML),
        ("aten::_cudnn_rnn", "rocm", Standing.KERNEL, Evidence.YAML),
        ("nowhere::nothing", "mps", Standing.UNKNOWN, Evidence.NONE),
    ],
)
def test_standing(operator: str, backend: str, standing: Standing, evidence: Evidence | None) -> None:
    found = support(operator, backends.find(backend))

    assert found.standing is standing
    assert evidence is None or found.evidence is evidence


def test_generated_overload_stands_as_the_one_it_calls() -> None:
    assert support("poisson.out", backends.find("cuda")).standing is Standing.COMPOSITE
    if RELEASE == "2.13":
        assert support("poisson.out", MPS).standing is Standing.MISSING
        assert support("poisson.out", MPS).named == "aten::poisson"


def test_standing_depends_on_the_layout() -> None:
    assert support("_coalesce", MPS).standing is Standing.FOREIGN
    assert support("_coalesce", MPS, "sparse_coo").standing is Standing.KERNEL
    assert support("mm", MPS, "quantized").standing is Standing.FOREIGN


def test_operator_of_a_library_is_asked_of_the_dispatcher() -> None:
    with torch.library._scoped_library("wherry_test", "DEF") as library:
        library.define("half(Tensor x) -> Tensor")
        library.impl("half", lambda x: x / 2, "CompositeExplicitAutograd")

        found = support("wherry_test::half", backends.find("xpu"))

    assert found.standing is Standing.COMPOSITE
    assert found.evidence is Evidence.DISPATCHER


def test_reading_the_catalog_imports_no_torch() -> None:
    code = (
        "import sys; from wherry import backends; from wherry.ops import catalog\n"
        "print(catalog.support('take', backends.find('mps')).standing.value, 'torch' in sys.modules)"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.split() == ["missing", "False"]


def test_answer_as_json() -> None:
    assert support("take", MPS).to_json() == {
        "operator": "aten::take",
        "backend": "mps",
        "standing": "missing",
        "evidence": "native_functions.yaml",
        "named": "aten::take",
    }
