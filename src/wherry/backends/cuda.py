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
    Kernels,
    Maturity,
    Memory,
    Presence,
    Profile,
    Quirk,
    State,
    VirtualDevice,
    Wording,
    why_unusable,
)
from wherry.backends._cuda_dtypes import LIMITS, UNSUPPORTED
from wherry.units import GIB, KIB, MIB


def _capability(*, threads: int, shared: int, optin: int) -> dict[str, object]:
    """Fields of get_device_properties() that follow from the compute capability; shared memory in KiB."""
    return {
        "max_threads_per_multi_processor": threads,
        "regs_per_multiprocessor": 65536,
        "shared_memory_per_block": 48 * KIB,
        "shared_memory_per_block_optin": optin * KIB,
        "shared_memory_per_multiprocessor": shared * KIB,
    }


def _gpu(
    name: str, memory: int, capability: tuple[int, int], *, sms: int, l2: int, clock: int, memory_clock: int, bus: int
) -> Profile:
    """A model of GPU; L2 in MiB, clocks in MHz, the bus in bits."""
    properties: dict[str, object] = {
        "major": capability[0],
        "minor": capability[1],
        "multi_processor_count": sms,
        "L2_cache_size": l2 * MIB,
        "clock_rate": clock * 1000,  # kHz
        "memory_clock_rate": memory_clock * 1000,  # kHz
        "memory_bus_width": bus,
        "gcnArchName": name,
    }
    return Profile(name, memory, {**_PER_CAPABILITY[capability], **properties})


# What a multiprocessor of each compute capability holds: the table "Technical Specifications per Compute Capability" of
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
_PER_CAPABILITY: dict[tuple[int, int], dict[str, object]] = {
    (7, 5): _capability(threads=1024, shared=64, optin=64),
    (8, 0): _capability(threads=2048, shared=164, optin=163),
    (8, 6): _capability(threads=1536, shared=100, optin=99),
    (8, 9): _capability(threads=1536, shared=100, optin=99),
    (9, 0): _capability(threads=2048, shared=228, optin=227),
}

# Common GPUs by short name. Multiprocessors, L2, bus and clocks are those of the product's data sheet or architecture
# white paper (https://www.nvidia.com/en-us/data-center/ , https://www.nvidia.com/en-us/geforce/). Memory: as a device
# printed it where a link stands beside it; else the board's, of which a driver keeps some hundred MiB.
_PROFILES = {
    "rtx3060": _gpu("NVIDIA GeForce RTX 3060", 12 * GIB, (8, 6), sms=28, l2=3, clock=1777, memory_clock=7501, bus=192),
    "rtx3090": _gpu("NVIDIA GeForce RTX 3090", 24 * GIB, (8, 6), sms=82, l2=6, clock=1695, memory_clock=9751, bus=384),
    "rtx4090": _gpu(
        "NVIDIA GeForce RTX 4090", 24563 * MIB, (8, 9), sms=128, l2=72, clock=2520, memory_clock=10501, bus=384
    ),
    # https://github.com/bottlerocket-os/bottlerocket/pull/3798 (deviceQuery)
    "t4": _gpu("Tesla T4", 15_655_829_504, (7, 5), sms=40, l2=4, clock=1590, memory_clock=5001, bus=256),
    "l4": _gpu("NVIDIA L4", 24 * GIB, (8, 9), sms=58, l2=48, clock=2040, memory_clock=6251, bus=192),
    # https://github.com/bottlerocket-os/bottlerocket/pull/3873 (deviceQuery)
    "a100-40gb": _gpu(
        "NVIDIA A100-SXM4-40GB", 42_298_834_944, (8, 0), sms=108, l2=40, clock=1410, memory_clock=1215, bus=5120
    ),
    "a100-80gb": _gpu(
        "NVIDIA A100-SXM4-80GB", 80 * GIB, (8, 0), sms=108, l2=40, clock=1410, memory_clock=1593, bus=5120
    ),
    "h100": _gpu("NVIDIA H100 80GB HBM3", 80 * GIB, (9, 0), sms=132, l2=50, clock=1980, memory_clock=2619, bus=5120),
    "h200": _gpu("NVIDIA H200", 141 * GIB, (9, 0), sms=132, l2=60, clock=1980, memory_clock=3201, bus=6144),
}


_HALVES = frozenset({"float16", "bfloat16"})
BEYOND_CPU: dict[str, frozenset[str]] = {
    "histc": INTEGERS - {"bool", "uint16", "uint32", "uint64"},
    **dict.fromkeys(
        (
            *("avg_pool3d", "avg_pool3d_backward"),
            *("_upsample_bilinear2d_aa", "_upsample_bilinear2d_aa_backward"),
            *("_upsample_bicubic2d_aa", "_upsample_bicubic2d_aa_backward"),
            *("multi_margin_loss", "multi_margin_loss_backward"),
            *("multilabel_margin_loss_forward", "multilabel_margin_loss_backward"),
        ),
        _HALVES,
    ),
}
"""dtypesIfCUDA of torch.testing._internal.common_methods_invocations (torch 2.13), where the CPU's kernels say no."""

# Seen on the host code of torch 2.13.0+cu130; documented at torch.use_deterministic_algorithms.
NONDETERMINISTIC = {
    "_adaptive_avg_pool2d_backward": "adaptive_avg_pool2d_backward_cuda",
    "_adaptive_avg_pool3d_backward": "adaptive_avg_pool3d_backward_cuda",
    "_ctc_loss_backward": "ctc_loss_backward_gpu",
    "_embedding_bag_backward": "embedding_bag_backward_cuda_max",
    "_embedding_bag_dense_backward": "embedding_bag_backward_cuda_max",
    "_upsample_bicubic2d_aa_backward": "upsample_bicubic2d_aa_backward_out_cuda",
    "_upsample_bilinear2d_aa_backward": "upsample_bilinear2d_aa_backward_out_cuda",
    "adaptive_max_pool2d_backward": "adaptive_max_pool2d_backward_cuda",
    "avg_pool3d_backward": "avg_pool3d_backward_cuda",
    "bincount": "_bincount_cuda",
    "fractional_max_pool2d_backward": "fractional_max_pool2d_backward_cuda",
    "fractional_max_pool3d_backward": "fractional_max_pool3d_backward_cuda",
    "grid_sampler_2d_backward": "grid_sampler_2d_backward_cuda",
    "grid_sampler_3d_backward": "grid_sampler_3d_backward_cuda",
    "histc": "_histc_cuda with floating point input",
    "index_reduce": "index_reduce_cuda",
    "index_reduce_": "index_reduce_cuda",
    "max_pool3d_with_indices_backward": "max_pool3d_with_indices_backward_cuda",
    "median.dim": "median CUDA with indices output",
    "nanmedian.dim": "median CUDA with indices output",
    "nll_loss2d_forward": "nll_loss2d_forward_out_cuda_template",
    "put": "put_",
    "put_": "put_",
    "reflection_pad1d_backward": "reflection_pad1d_backward_out_cuda",
    "reflection_pad3d_backward": "reflection_pad3d_backward_out_cuda",
    "scatter.reduce": "scatter_reduce_cuda_kernel",
    "scatter_.reduce": "scatter_reduce_cuda_kernel",
    "scatter_reduce": "scatter_reduce_cuda_prod_",
    "scatter_reduce_": "scatter_reduce_cuda_prod_",
    "upsample_bicubic2d_backward": "upsample_bicubic2d_backward_out_cuda",
    "upsample_linear1d_backward": "upsample_linear1d_backward_out_cuda",
}


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
    # native_functions.yaml shows all of its kernels. Without one, the dispatcher speaks.
    kernels = Kernels(key="CUDA", limits=LIMITS, unsupported=UNSUPPORTED)
    # GeForce RTX 4090. Name, capability, multiprocessors, memory and L2 as torch.cuda.get_device_properties printed them
    # (driver 572.70); clocks and bus are the board's; the figures per block and multiprocessor those of compute capability 8.9:
    # https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities
    virtual = VirtualDevice(
        name="NVIDIA GeForce RTX 4090",
        total_memory=24563 * MIB,
        profiles=_PROFILES,
        highest_priority=-3,
        beyond_cpu=BEYOND_CPU,
        nondeterministic=NONDETERMINISTIC,
        # The default wheel of torch 2.13 (torch.cuda.get_arch_list, torch._C._cudnn.getVersionInt, ...).
        architectures=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
        libraries={"cudnn": 92000, "nccl": (2, 29, 7), "cusparselt": 801},
        max_count=16,  # as many as any one machine is sold with; torch itself stops at 120 (c10/cuda/CUDAMacros.h)
        constants={
            "torch.version.cuda": "13.0",  # of the default wheels of torch 2.13
            "torch.version.hip": None,
            "torch.cuda.has_magma": True,
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
