"""The kernels of XPU against the yaml of the installed torch, and against what users saw."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torchgen

from wherry.backends import Kernels, Span
from wherry.backends.xpu import BACKEND

assert BACKEND.kernels is not None
KERNELS: Kernels = BACKEND.kernels
OLDEST, NEWEST = "2.6", "2.14"  # the releases whose tables were read

_YAML = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
_ENTRIES: dict[str, str] = {
    entry.partition("(")[0]: entry for entry in re.split(r"^- func: ", _YAML.read_text(), flags=re.MULTILINE)[1:]
}


def keys_of(name: str) -> set[str]:
    """The dispatch keys that an entry shows of its own."""
    _, _, dispatch = _ENTRIES[name].partition("\n  dispatch:\n")
    return {key for line in re.findall(r"^    ([\w, ]+):", dispatch, re.MULTILINE) for key in line.split(", ")}


def now(table: Mapping[str, Span]) -> set[str]:
    return {name for name, span in table.items() if span.holds(torch.__version__)}


def test_every_overload_named_for_this_torch_is_in_its_yaml() -> None:
    named = now(KERNELS.also) | now(KERNELS.without) | now(KERNELS.falls_back)

    assert named - _ENTRIES.keys() == set()


def test_yaml_shows_no_kernel_where_the_table_says_there_is_none() -> None:
    """A kernel in oneDNN is shown by torch itself, and the table does not contradict it."""
    gone = now(KERNELS.without) | now(KERNELS.falls_back)

    assert {name for name in gone if "XPU" in keys_of(name)} == set()


@pytest.mark.skipif(not KERNELS.shares_in.holds(torch.__version__), reason="this torch shows every kernel itself")
def test_table_repeats_nothing_that_the_yaml_shows() -> None:
    assert {name for name in now(KERNELS.without) if "CUDA" not in keys_of(name)} == set()
    assert {name for name in now(KERNELS.also) if {"CUDA", "XPU"} & keys_of(name)} == set()
    assert "XPU" in keys_of("mm.out"), "the twin: keys are found where they stand"


def test_overload_that_falls_back_is_not_named_again() -> None:
    releases = [f"2.{minor}" for minor in range(6, 15)]
    assert (releases[0], releases[-1]) == (OLDEST, NEWEST)

    both = KERNELS.without.keys() & KERNELS.falls_back.keys()

    assert both, "some fell back after they had been missing, or the other way round"
    for name in both:
        assert not any(KERNELS.without[name].holds(one) and KERNELS.falls_back[name].holds(one) for one in releases)


def test_functional_overloads_of_structured_operators_are_not_named() -> None:
    named = now(KERNELS.without) | now(KERNELS.falls_back)
    delegates = {name: re.search(r"structured_delegate: (\S+)", _ENTRIES[name]) for name in named}

    assert {name for name, found in delegates.items() if found and found.group(1) in named} == set()


@pytest.mark.parametrize(
    ("table", "name", "holds", "ends"),
    [
        # https://github.com/intel/torch-xpu-ops/issues/1887: torch 2.8 warns of linalg.inv, later ones compute it.
        (KERNELS.falls_back, "linalg_inv_ex.inverse", "2.8", "2.9"),
        # https://github.com/intel/torch-xpu-ops/pull/2627, on torch 2.10: dot goes through the CPU.
        (KERNELS.falls_back, "dot", "2.10", "2.11"),
        # https://github.com/intel/torch-xpu-ops/issues/3143
        (KERNELS.without, "_scaled_dot_product_efficient_attention_backward", "2.12", "2.13"),
    ],
)
def test_what_users_saw_holds_until_the_kernel_came(
    table: Mapping[str, Span], name: str, holds: str, ends: str
) -> None:
    assert table[name].holds(holds)
    assert not table[name].holds(ends)


def test_miopen_is_missing_to_this_day() -> None:
    """https://github.com/intel/torch-xpu-ops/issues/2711"""
    assert KERNELS.without["miopen_rnn"] == Span()


def test_missing_operator_is_named_with_its_overload() -> None:
    """https://github.com/intel/torch-xpu-ops/issues/3143"""
    assert KERNELS.error is not None
    kind, text = KERNELS.error

    assert kind == "NotImplementedError"
    assert text.format(operator="aten::miopen_rnn", commit="") == (
        "The operator 'aten::miopen_rnn' is not currently implemented for the XPU device. Please open a feature on "
        "https://github.com/intel/torch-xpu-ops/issues. You can set the environment variable `PYTORCH_ENABLE_XPU_FALLBACK=1` "
        "to use the CPU implementation as a fallback for XPU unimplemented operators. WARNING: this will bring unexpected "
        "performance compared with running natively on XPU."
    )


@pytest.mark.parametrize(
    ("release", "texts"),
    [
        ("2.10", []),
        ("2.12", ["xpu and cpu! (Operator aten::geqrf)"]),
        ("2.13", ["xpu:0 and cpu! (Operator aten::geqrf)"]),
    ],
)
def test_two_devices_are_refused_before_the_way_through_the_cpu(release: str, texts: list[str]) -> None:
    first, second = torch.device("xpu", 0), torch.device("cpu")

    said = [
        text.format(first=first, second=second, operator="aten::geqrf").partition("two devices, ")[2]
        for text, span in KERNELS.one_device.items()
        if span.holds(release)
    ]

    assert said == texts
