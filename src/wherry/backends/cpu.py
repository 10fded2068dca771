"""The host itself, which is also where everything lives that was not moved.

Asked through   torch.cpu, and the operating system for memory.
Sources         torch/cpu/__init__.py and c10/core/impl/alloc_cpu.cpp (torch 2.13).
"""

from __future__ import annotations

import platform
import re
from pathlib import Path

from wherry.backends._backend import (
    COMPLEX,
    FLOAT8,
    FLOATS,
    INTEGERS,
    QUANTIZED,
    Backend,
    Capabilities,
    Maturity,
    Memory,
    Presence,
    State,
    VirtualDevice,
    Wording,
)
from wherry.units import GIB, KIB


class Cpu(Backend):
    name = device_type = "cpu"
    title = "CPU"
    namespace = "torch.cpu"
    aliases = ("host",)
    priority = 0  # the last resort: it is always here
    capabilities = Capabilities(
        dtypes=FLOATS | {"float64"} | FLOAT8 | COMPLEX | INTEGERS | QUANTIZED,
        streams=False,  # torch.Stream(device="cpu") exists and does nothing
        timed_events=False,
        graphs=False,
        pinned_memory=False,  # it is the CPU's memory that gets pinned, for the sake of another device
        non_blocking=False,  # accepted and ignored
        autocast_dtypes=("bfloat16", "float16"),
        autocast_default="bfloat16",
        grad_scaler=True,
        foreach_default=False,
        fused_optimizers=("Adam", "AdamW", "SGD", "Adagrad"),
        compile=Maturity.MATURE,
        distributed="gloo",
    )
    wording = Wording(
        check_prefix=None,
        tensor_type="torch",
        lazy_init=("RuntimeError", ""),  # never said: the CPU is never absent
        out_of_memory=(
            "RuntimeError",
            (
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
                "you tried to allocate {tried_nbytes} bytes. Error code 12 (Cannot allocate memory)"
            ),
        ),
    )
    # A machine without an accelerator, whatever is installed: a common CI runner has 16 GiB.
    # https://docs.github.com/en/actions/reference/runners/github-hosted-runners
    virtual = VirtualDevice(
        name="CPU",
        total_memory=16 * GIB,
        max_count=1,
        constants={"torch.version.cuda": None, "torch.version.hip": None, "torch.version.xpu": None},
    )

    def count(self) -> int:
        return 1

    def look(self) -> Presence:
        import torch

        threads = torch.get_num_threads()
        return Presence(State.PRESENT, f"{threads} {'thread' if threads == 1 else 'threads'}", 1, (_model(),))

    def memory(self, index: int) -> Memory | None:
        """Of the whole machine. Linux only: elsewhere the standard library cannot tell what is free."""
        try:
            table = Path("/proc/meminfo").read_text()
        except OSError:
            return None
        kib = dict(re.findall(r"^(\w+):\s+(\d+) kB$", table, re.MULTILINE))
        if "MemAvailable" not in kib:
            return None
        return Memory(free=int(kib["MemAvailable"]) * KIB, total=int(kib["MemTotal"]) * KIB)


def _model() -> str:
    """The model as Linux names it; elsewhere the architecture is all that can be had without a subprocess."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.machine()


BACKEND = Cpu()
