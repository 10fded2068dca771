"""NVIDIA GPUs.

Asked through   torch.cuda, when torch is not built for ROCm (then the same names speak for AMD: see rocm.py).
Not knowable    link speed to the host, unless measured.
Sources         torch/cuda/__init__.py and memory.py (torch 2.13); c10/cuda/CUDAFunctions.cpp for why one is absent.
"""

from __future__ import annotations

import shutil
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
    Quirk,
    State,
    VirtualDevice,
    Wording,
    why_unusable,
)
from wherry.units import KIB, MIB


class Cuda(Backend):
    name = device_type = "cuda"
    title = "NVIDIA CUDA"
    namespace = "torch.cuda"
    aliases = ("nvidia", "gpu")
    priority = 40
    visibility = ("CUDA_VISIBLE_DEVICES",)
    capabilities = Capabilities(
        dtypes=FLOATS | {"float64"} | FLOAT8 | COMPLEX | INTEGERS | QUANTIZED,
        streams=True,
        timed_events=True,
        graphs=True,
        pinned_memory=True,
        non_blocking=True,
        autocast_dtypes=("float16", "bfloat16"),
        autocast_default="float16",
        grad_scaler=True,
        foreach_default=True,
        fused_optimizers=("Adam", "AdamW", "SGD", "Adagrad"),
        compile=Maturity.MATURE,
        distributed="nccl",
    )
    wording = Wording(
        check_prefix="CUDA",
        tensor_type="torch.cuda",
        # What a CPU-only or macOS build says: torch/cuda/__init__.py, _lazy_init.
        lazy_init=("AssertionError", "Torch not compiled with CUDA enabled"),
        # c10/cuda/CUDACachingAllocator.cpp; two spaces before "See" and before "(" are the original's.
        out_of_memory=(
            "OutOfMemoryError",
            (
                "CUDA out of memory. Tried to allocate {tried}. GPU {index} has a total capacity of {total} of which {free} is "
                "free. Of the allocated memory {allocated} is allocated by PyTorch, and {reserved} is reserved by PyTorch but "
                "unallocated. If reserved but unallocated memory is large try setting "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
                "Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
                "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
            ),
        ),
    )
    # GeForce RTX 4090. Name, capability, multiprocessors, memory and L2 as torch.cuda.get_device_properties printed them
    # (driver 572.70); clocks and bus are the board's; the figures per block and multiprocessor those of compute capability 8.9:
    # https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
    virtual = VirtualDevice(
        name="NVIDIA GeForce RTX 4090",
        total_memory=24563 * MIB,
        max_count=16,  # as many as any one machine is sold with; torch itself stops at 120 (c10/cuda/CUDAMacros.h)
        constants={
            "torch.version.cuda": "13.0",  # of the default wheels of torch 2.13
            "torch.version.hip": None,
            "torch.version.xpu": None,
        },
        properties={
            "major": 8,
            "minor": 9,
            "multi_processor_count": 128,
            "max_threads_per_block": 1024,
            "max_threads_per_multi_processor": 1536,
            "regs_per_multiprocessor": 65536,
            "warp_size": 32,
            "L2_cache_size": 72 * MIB,
            "shared_memory_per_block": 48 * KIB,
            "shared_memory_per_block_optin": 99 * KIB,
            "shared_memory_per_multiprocessor": 100 * KIB,
            "clock_rate": 2_520_000,  # kHz
            "memory_clock_rate": 10_501_000,  # kHz
            "memory_bus_width": 384,  # bits
            "is_integrated": 0,
            "is_multi_gpu_board": 0,
            "pci_domain_id": 0,
            "pci_bus_id": 1,
            "pci_device_id": 0,
            "gcnArchName": "NVIDIA GeForce RTX 4090",  # the same field as the name, except on ROCm (torch/csrc/cuda/Module.cpp)
        },
    )
    quirks = (
        Quirk(
            what="torch.cuda.mem_get_info starts a context on the device it asks about, some hundred MiB until exit",
            since="2.0",
            source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#initialization",
        ),
        Quirk(
            what="non_blocking copies from pageable memory wait, and D2H copies must be synchronized before they are read",
            since="2.0",
            source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        ),
        Quirk(
            what="a process that forked after CUDA was used cannot use it in the child",
            since="2.0",
            source="https://docs.pytorch.org/docs/stable/notes/multiprocessing.html",
        ),
    )

    def count(self) -> int:
        import torch

        if torch.version.hip or not torch.cuda.is_available():
            return 0
        return torch.cuda.device_count()

    def look(self) -> Presence:
        import torch

        if torch.version.hip:
            return Presence(State.ABSENT, "this torch is built for ROCm")
        count = self.count()
        if count:
            names = tuple(torch.cuda.get_device_name(i) for i in range(count))
            return Presence(State.PRESENT, f"CUDA {torch.version.cuda}", count, names)
        if not torch.backends.cuda.is_built():
            hint = "; an NVIDIA driver is here, so a CUDA build of torch would use it" if _driver_is_here() else ""
            return Presence(State.ABSENT, f"torch {torch.__version__} is built without CUDA{hint}")
        return why_unusable(
            torch.cuda.init,
            absent=("Found no NVIDIA driver", "No CUDA GPUs are available"),
            hidden_by=self.hidden_by(),
        )

    def memory(self, index: int) -> Memory | None:
        import torch

        free, total = torch.cuda.mem_get_info(index)
        return Memory(free=free, total=total)


def _driver_is_here() -> bool:
    """Whether an NVIDIA driver is installed, whatever torch was built for. Asks files only."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


BACKEND = Cuda()
