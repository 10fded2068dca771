"""What a rehearsal of MPS foresees is what PyTorch itself expects to fail there (scripts/mps_expected_failures.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
try:
    import mps_expected_failures as script
finally:
    sys.path.pop(0)


@pytest.fixture(scope="module")
def figures() -> script.Figures:
    return script.compare()


@pytest.mark.filterwarnings("ignore")
def test_precision_and_recall(figures: script.Figures) -> None:
    assert figures.precision >= 0.95
    assert figures.recall >= 0.92


@pytest.mark.filterwarnings("ignore")
def test_every_disagreement_has_a_reason(figures: script.Figures) -> None:
    if not torch.__version__.startswith("2.13"):
        pytest.skip("the reasons are those of 2.13")

    assert figures.disagreements == sorted(script.DISAGREEMENTS)


def test_lists_are_read_as_python_reads_them() -> None:
    source = (
        'if True:\n    A: dict = {"x": None, "y": [torch.int8, torch.float32]}\n    B: dict = {}\n    C = {"z": None}\n'
    )

    assert dict(script.dictionaries(source)) == {"A": {"x": None, "y": ["int8", "float32"]}, "B": {}}
