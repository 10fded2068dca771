"""The benchmarks answer their questions: the arithmetic is right, a missed target is told, and each of them runs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the benchmarks measure PyTorch")

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
QUESTIONS = sorted(path.name for path in BENCHMARKS.glob("*.py"))
SHORT = {  # the part that says enough
    "dispatch_overhead.py": ("--only", "a + b"),
    "mlx_there_and_back.py": ("--only", "there float32"),
    "train_step.py": ("--only", "MLP"),
}
NEEDS_A_GPU = ("packed_copies.py",)
NEEDS = {"mlx_there_and_back.py": "mlx.core"}  # what is not built for every system


@pytest.fixture
def rounds(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from measure import rounds

    return rounds


def options(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"rounds": 3, "json": None, "check": True, **given})


def test_a_ratio_is_the_median_of_the_ratios_of_each_round(rounds):
    # The machine is ten times slower in the last round. Medians alone would say 3/2.
    result = rounds.Rounds({"ours": (2.0, 3.0, 40.0), "plain": (1.0, 2.0, 20.0)})

    assert result.ratio("ours", "plain").median == 2.0


def test_an_overhead_is_what_goes_beyond_plain(rounds):
    result = rounds.Rounds({"ours": (4.0, 8.0), "empty": (3.0, 6.0), "plain": (1.0, 2.0)})

    assert result.overhead_ratio("ours", "empty", over="plain").median == 1.5


def test_every_candidate_is_measured_once_a_round_and_every_second_round_backwards(rounds):
    order = []

    def candidate(name):
        return lambda: order.append(name) or 1.0

    result = rounds.play({name: candidate(name) for name in "abc"}, rounds=2)

    assert "".join(order) == "abc" + "abc" + "cba"  # the first does not count
    assert result.samples == dict.fromkeys("abc", (1.0, 1.0))


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1234"), (104.2, "104"), (0.9812, "0.981"), (0.00412, "0.00412"), (0.0, "0")]
)
def test_numbers_have_three_figures_and_no_exponent(rounds, value, text):
    assert str(rounds.Quartiles(value, value, value)) == f"{text} ({text}..{text})"


def test_a_missed_target_fails_only_when_asked(rounds, capsys):
    missed = rounds.Target("ours in plain's", 1.31, 1.3)

    rounds.report("question", "sizes", [{"way": "ours"}], [missed], options(check=False))
    with pytest.raises(SystemExit) as ended:
        rounds.report("question", "sizes", [{"way": "ours"}], [missed], options())

    assert ended.value.code == 1
    assert "MISSED ours in plain's: 1.31, promised <= 1.3" in capsys.readouterr().out


def test_a_target_that_is_met_passes(rounds):
    rounds.report("question", "sizes", [{"way": "ours"}], [rounds.Target("ours", 1.3, 1.3)], options())


def test_the_page_describes_every_benchmark():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")

    assert [name for name in QUESTIONS if f"`{name}`" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_benchmark_checks_its_answers_and_writes_its_numbers(name, tmp_path):
    """One round tells nothing of speed, so nothing of it is asserted here; the answers are checked by the script."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} measures what is not installed here")
    if name in NEEDS_A_GPU and not torch.cuda.is_available():
        pytest.skip(f"{name} measures what only a GPU can tell")
    path = tmp_path / "numbers.json"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(BENCHMARKS / name), "--rounds", "1", "--json", str(path), *SHORT.get(name, ())]

    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    numbers = json.loads(path.read_text(encoding="utf-8"))
    assert numbers["environment"]["torch"]
    assert numbers["targets"]
    assert all(row.keys() == numbers["rows"][0].keys() for row in numbers["rows"])
