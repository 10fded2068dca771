"""What became float64 by accident: the advice, taken word for word, ends in a program that runs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import wherry
from wherry.explain.causes import unsupported_dtype

CASES = [
    path
    for path in sorted((Path(__file__).parent / "cases").glob("*.json"))
    if json.loads(path.read_text(encoding="utf-8"))["kind"] == "float64-on-mps"
]
LESS = (
    lambda text: f"{text}.float()",
    lambda text: f"{text}.astype(np.float32)",
    lambda text: f"{text[:-1]}, dtype=torch.float32)",
    lambda text: text.replace(".to_numpy()", '.to_numpy(dtype="float32")'),
    lambda text: text.replace("torch.float64", "torch.float32").replace("torch.double", "torch.float32"),
    lambda text: text.replace("DoubleTensor", "FloatTensor"),
)


def parts(line: str) -> Iterator[str]:
    """The expressions in a line of a program, the longest first."""
    text = re.sub(r"^(if|for|with) |:$", "", line.strip())
    found = {ast.get_source_segment(text, node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.expr)}
    yield from sorted(filter(None, found), key=len, reverse=True)


def written(line: str, advised: str) -> str:
    """A line with the expression of an advice in the place of the one that it is about."""
    for part in parts(line):
        if any(less(part) == advised for less in LESS):
            return line.replace(part, advised)
    raise AssertionError(f"no part of {line!r} becomes {advised!r}")


def cast_in(line: str, advised: str) -> str:
    """The same for a cast before a move, or of an operand."""
    name = re.match(r"(\w+)\.(?:float\(\)|astype\(np\.float32\))$", advised)
    if name is not None:
        target, equals, value = line.rpartition(" = ")
        return target + equals + re.sub(rf"\b{name[1]}\b", advised, value, count=1)
    for part in parts(line):
        receiver, dot, rest = part.rpartition(".to(")
        cast = (f"{receiver}.float()", f"({receiver}.float() if {receiver}.dtype == torch.float64 else {receiver})")
        if any(f"{one}{dot}{rest}" == advised for one in cast):
            return line.replace(part, advised)
    raise AssertionError(f"no move in {line!r} becomes {advised!r}")


def followed(lines: list[str], fix: str, failed: int, *, early: bool) -> None:
    """Change a program as an advice says."""
    at = re.search(r" \(line (\d+)\)", fix)
    line = failed if at is None else int(at[1])
    first, _, second = fix.replace("" if at is None else at[0], "").partition(", or ")
    if first.startswith(("Leave out ", "Stay in ")):
        word = re.sub(r"^.*eave out ", "", first).rstrip(".")
        lines[line - 1] = lines[line - 1].replace(word, "" if word.startswith(".") else "None")
        return
    if second and not early:
        advised = second.partition(": ")[2]
        lines[failed - 1] = cast_in(lines[failed - 1], advised)
    elif "before it moves" in first:
        lines[line - 1] = cast_in(lines[line - 1], first.partition(": ")[2])
    else:
        lines[line - 1] = written(lines[line - 1], first.partition(": ")[2])


@pytest.mark.parametrize("early", [True, False], ids=["where it is made", "before it moves"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_program_runs_once_it_follows_the_advice(path: Path, early: bool, run_program, tmp_path: Path) -> None:
    lines = path.with_suffix(".py").read_text(encoding="utf-8").splitlines()
    for turn in range(8):
        program = tmp_path / f"program_{turn}.py"
        program.write_text("\n".join(lines) + "\n", encoding="utf-8")
        printed, error = run_program(program, "mps")
        torch.set_default_dtype(torch.float32)
        if error is None:
            assert turn
            assert printed.strip().endswith("OK")
            return
        diagnosis = wherry.explain_exception(error)
        assert diagnosis is not None, error
        assert diagnosis.culprit is not None
        assert diagnosis.culprit.kind == unsupported_dtype.CAUSE.name, diagnosis
        assert diagnosis.site is not None
        followed(lines, diagnosis.fix, diagnosis.site.line, early=early)
    raise AssertionError("it never ran")
