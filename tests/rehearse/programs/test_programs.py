"""Ordinary training programs end with the very weights of the plain CPU run, and with all of them on the device.

What the CPU run is made alike in, and why, stands at the top of _running.py. Mixed precision is compared with the CPU's
own autocast: the ops that the program runs under it (convolution, linear) are cast on every device.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
try:
    import _running as programs
finally:
    sys.path.pop(0)


def differing(got, wanted) -> list[str]:
    assert got.values.keys() == wanted.values.keys()
    return [key for key, value in wanted.values.items() if not torch.equal(got.values[key], value)]


@pytest.mark.parametrize("backend", programs.DEVICE_TYPES)
@pytest.mark.parametrize("name", programs.NAMES)
def test_final_weights_are_those_of_the_cpu_and_on_the_device(name: str, backend: str) -> None:
    wanted = programs.on_the_cpu(name, foreach=backend in programs.FOREACH)

    got = programs.on(backend, name)

    assert differing(got, wanted) == []
    kind = programs.DEVICE_TYPES[backend]
    used = {f"{kind}:0", f"{kind}:1"} if name == "model_parallel" and backend != "mps" else {f"{kind}:0"}
    assert set(got.devices.values()) == used


@pytest.mark.parametrize("name", programs.NAMES)
def test_program_trains(name: str) -> None:
    """The twin: weights that agree because nothing was trained would prove nothing."""
    untrained = programs.train(name, "cpu", steps=0)

    trained = programs.on_the_cpu(name, foreach=False)

    assert all(value.isfinite().all() for value in trained.values.values() if value.is_floating_point())
    assert any(
        not torch.equal(value, trained.values[key]) for key, value in untrained.values.items() if key in trained.values
    )


def test_difference_of_one_bit_is_noticed() -> None:
    wanted = programs.on_the_cpu("lora", foreach=False)
    changed = {
        key: torch.nextafter(value, value + 1) if key == "0.0.bias" else value for key, value in wanted.values.items()
    }

    assert differing(programs.Trained(changed, {}), wanted) == ["0.0.bias"]


def test_programs_know_nothing_of_wherry() -> None:
    assert [
        name for name in programs.NAMES if "wherry" in (programs.FOLDER / f"{name}.py").read_text(encoding="utf-8")
    ] == []
