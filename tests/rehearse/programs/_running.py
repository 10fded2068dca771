"""Running a program of this folder in this process: on the CPU, on a rehearsed device, and with one tensor left behind.

The programs are what people write: none knows wherry, each takes its device as an argument and returns what it trained.
All of them draw their random numbers on the CPU (weights before `.to(device)`, data, noise, sampled actions; no dropout),
because a device has a generator of its own, and its numbers are others.

Where a device and the CPU would run different optimizer code, the CPU run is made to choose as the device does: without
an argument, optimizers and `AveragedModel` take their multi-tensor ("foreach") code on CUDA and XPU, and their
single-tensor code on the CPU and MPS (torch/utils/_foreach_utils.py), and the two round differently.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils import _foreach_utils

from wherry.rehearse import rehearse

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.py") if not path.name.startswith(("test_", "_"))))

DEVICE_TYPES = {"cuda": "cuda", "rocm": "cuda", "mps": "mps", "xpu": "xpu"}  # what a program is told, by backend
FOREACH = ("cuda", "rocm", "xpu")
SPLIT = ("model_parallel", "data_parallel")  # run on two devices where a backend has two


@dataclass(frozen=True)
class Trained:
    """What a program returned: each tensor's values on the CPU, and the device it was on."""

    values: dict[str, torch.Tensor]
    devices: dict[str, str] = field(compare=False)


def named_tensors(returned: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers (those outside of state_dict too), and bare tensors."""
    for number, part in enumerate(returned if isinstance(returned, tuple) else (returned,)):
        if isinstance(part, torch.Tensor):
            yield str(number), part
        else:
            for name, tensor in (*part.named_parameters(), *part.named_buffers()):
                yield f"{number}.{name}", tensor


def load(name: str, source: str | None = None) -> ModuleType:
    """A fresh module of a program, or of a changed text of it; a traceback shows the program's own file."""
    path = FOLDER / f"{name}.py"
    module = ModuleType(f"program_{name}")
    module.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8") if source is None else source, str(path), "exec"), module.__dict__)
    return module


def train(name: str, device: str, **options: Any) -> Trained:
    """Run a program where it is now: in a rehearsal, or on the CPU."""
    with contextlib.redirect_stdout(io.StringIO()):
        returned = load(name).train(device, **options)
    tensors = dict(named_tensors(returned))
    devices = {key: str(tensor.device) for key, tensor in tensors.items()}
    return Trained({key: tensor.detach().cpu().clone() for key, tensor in tensors.items()}, devices)


@contextlib.contextmanager
def choosing_foreach() -> Iterator[None]:
    """Let the CPU be one of the devices on which foreach code is the default."""
    original = _foreach_utils._get_foreach_kernels_supported_devices

    def with_cpu() -> list[str]:
        return [*original(), "cpu"]

    with pytest.MonkeyPatch.context() as patch:
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(original.__name__) is original:
                patch.setattr(module, original.__name__, with_cpu)
        yield


@functools.cache
def on_the_cpu(name: str, *, foreach: bool) -> Trained:
    with choosing_foreach() if foreach else contextlib.nullcontext():
        return train(name, "cpu")


def on(backend: str, name: str, **options: Any) -> Trained:
    """Run a program on a rehearsed device of a backend, on two where it is made for two."""
    count = 2 if name in SPLIT and backend != "mps" else 1
    with rehearse(backend, count=count):
        return train(name, DEVICE_TYPES[backend], **options)
