"""What the schema of an overload says: names, what is written to, what is new."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torchgen


def test_arguments_have_names_and_know_whether_they_are_keyword_only() -> None:
    arguments = torch.ops.aten.add.out._schema.arguments

    assert [(a.name, a.kwarg_only) for a in arguments] == [
        ("self", False),
        ("other", False),
        ("alpha", True),
        ("out", True),
    ]


def test_written_arguments_are_marked() -> None:
    written = [
        a.name for a in torch.ops.aten.add.out._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]

    assert written == ["out"]


@pytest.mark.parametrize(
    ("overload", "new"),
    [
        (torch.ops.aten.add.Tensor, True),
        (torch.ops.aten.view.default, False),
        (torch.ops.aten.add_.Tensor, False),
        (torch.ops.aten.detach.default, False),
        (torch.ops.aten.max.dim, True),
    ],
    ids=str,
)
def test_new_results_have_no_alias_information(overload: torch._ops.OpOverload, new: bool) -> None:
    assert any(r.alias_info is None for r in overload._schema.returns) is new


@pytest.mark.parametrize("overload", [torch.ops.aten.zeros.default, torch.ops.aten._to_copy.default], ids=str)
def test_device_argument_is_found_by_name_and_type(overload: torch._ops.OpOverload) -> None:
    assert [str(a.type) for a in overload._schema.arguments if a.name == "device"] == ["Optional[Device]"]


def test_generated_checks_are_described_in_a_file_that_ships_with_torch() -> None:
    file = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    text = file.read_text(encoding="utf-8")

    assert len(re.findall(r"^- func: ", text, re.MULTILINE)) > 2000
    assert "device_check: NoCheck" in text
    assert re.search(r"^- func: mm\(", text, re.MULTILINE)
