"""Small programs with one device bug each: the post-mortem names the culprit, the line it comes from, and a fix.

Each program has the right answer beside it, in a file of its own, and a twin that is mended. No cause knows its file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import wherry

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def plain(name: str) -> str:
    return re.sub(r"\s+", "", name).replace('"', "'")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_culprit_is_named_and_traced_to_its_line(path: Path, run_program) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    script = path.with_suffix(".py")

    _, error = run_program(script, case["device"], case["n_devices"])

    assert error is not None
    assert type(error).__name__ == case["error_type"]
    diagnosis = wherry.explain_exception(error)
    assert diagnosis is not None
    assert diagnosis.site is not None
    assert (Path(diagnosis.site.file).name, diagnosis.site.line) == (script.name, case["error_line"])
    culprit = diagnosis.culprit
    assert culprit is not None
    assert plain(culprit.name) in {plain(name) for name in (case["culprit"], *case["alt_culprits"])}
    assert culprit.origin is not None
    assert Path(culprit.origin.file).name == script.name
    assert culprit.origin.line in {case["origin_line"], *case["alt_origin_lines"]}
    assert diagnosis.why
    assert diagnosis.fix


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_mended_twin_runs(path: Path, run_program) -> None:
    """The twin of the test above: it is the one bug that makes the program fail."""
    case = json.loads(path.read_text(encoding="utf-8"))

    printed, error = run_program(path.with_name(f"{path.stem}_fixed.py"), case["device"], case["n_devices"])

    assert error is None
    assert printed.strip().endswith("OK")
