"""Every program in examples/ runs on every device that can be rehearsed, and reports what it reports on the CPU.

"What it reports" is the number of its last line. Equal means equal as printed, for the programs that draw on the CPU
whatever their training depends on. Two draw noise on the device, which has a generator of its own; those are close.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the examples are PyTorch programs")
pytest.importorskip("sklearn", reason="the examples take their data from scikit-learn")

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

DEVICE_TYPES = {"cpu": "cpu", "cuda": "cuda", "rocm": "cuda", "mps": "mps", "xpu": "xpu"}  # by what `--on` calls them


@dataclass(frozen=True, slots=True)
class Example:
    """A program, made short, and how far its result on a device may be from the one on the CPU (0.1 is a tenth)."""

    script: str
    arguments: tuple[str, ...] = ()
    tolerance: float = 0.0


PROGRAMS = (
    Example("digits.py", ("--epochs", "4")),
    Example("char_gpt.py", ("--steps", "20", "--sample", "8")),
    Example("lstm.py", ("--epochs", "1", "--steps", "8")),
    Example("model_parallel.py", ("--steps", "40")),
    Example("vae.py", ("--epochs", "10"), tolerance=0.05),  # noise is drawn on the device
    Example("amp_gan.py", ("--epochs", "10"), tolerance=0.5),  # noise too, and float16 instead of bfloat16
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True, check=False)


def rehearse(on: str, example: Example, *options: str) -> subprocess.CompletedProcess[str]:
    wherry = ("-m", "wherry", "run", "--on", on, "--virtual", *options)
    return run(*wherry, str(EXAMPLES / example.script), "--device", DEVICE_TYPES[on], *example.arguments)


@cache
def result_on_the_cpu(example: Example) -> float:
    done = run(str(EXAMPLES / example.script), "--device", "cpu", *example.arguments)
    assert done.returncode == 0, done.stderr
    return reported(done.stdout)


def reported(stdout: str) -> float:
    """The first number of the last line."""
    match = re.search(r"\d+\.\d+", stdout.splitlines()[-1])
    assert match is not None, stdout
    return float(match.group())


def test_no_example_is_forgotten():
    assert {example.script for example in PROGRAMS} == {path.name for path in EXAMPLES.glob("*.py")}


def test_the_readme_describes_every_example():
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")

    assert [example.script for example in PROGRAMS if f"| [{example.script}]({example.script}) |" not in readme] == []


def test_no_example_knows_wherry():
    assert [path.name for path in EXAMPLES.glob("*.py") if "wherry" in path.read_text(encoding="utf-8")] == []


@pytest.mark.slow
@pytest.mark.parametrize("on", DEVICE_TYPES)
@pytest.mark.parametrize("example", PROGRAMS, ids=lambda example: example.script)
def test_an_example_reports_on_every_device_what_it_reports_on_the_cpu(example, on):
    done = rehearse(on, example)

    assert done.returncode == 0, done.stderr
    last_line = done.stdout.splitlines()[-1]
    assert last_line.endswith(DEVICE_TYPES[on]), last_line
    assert math.isclose(reported(done.stdout), result_on_the_cpu(example), rel_tol=example.tolerance), last_line


@pytest.mark.slow
def test_the_halves_of_a_network_live_on_two_devices():
    example = next(example for example in PROGRAMS if example.script == "model_parallel.py")

    done = rehearse("cuda", example, "--count", "2")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "first half on cuda:0, second half on cuda:1"
    assert reported(done.stdout) == result_on_the_cpu(example)


@pytest.mark.slow
def test_a_checkpoint_written_on_one_device_is_gone_on_with_on_another(tmp_path):
    checkpoint = ("--checkpoint", str(tmp_path / "gpt.pt"), "--sample", "8")

    written = rehearse("cuda", Example("char_gpt.py", ("--steps", "10", *checkpoint)))
    read = rehearse("mps", Example("char_gpt.py", ("--steps", "11", "--resume", *checkpoint)))

    assert written.returncode == 0, written.stderr
    assert read.returncode == 0, read.stderr
    assert "step   11/11" in read.stdout


@pytest.mark.slow
def test_the_digits_fail_when_they_are_not_learned():
    """The twin of the above: the exit status of a program that misses its goal comes through."""
    done = rehearse("mps", Example("digits.py", ("--epochs", "1", "--lr", "0.0001")))

    assert done.returncode == 1
    assert "below the 95%" in done.stderr
