"""AMD GPUs, which torch calls "cuda".

There is no torch.device("rocm"): a torch built for ROCm answers to all the CUDA names, its tensors say "cuda", and only
`torch.version.hip` tells.

Asked through   torch.cuda, when torch is built for ROCm.       Not knowable   link speed to the host, unless measured.
Sources         https://docs.pytorch.org/docs/2.13/notes/hip.html and torch/cuda/__init__.py (torch 2.13).
"""

from __future__ import annotations

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
from wherry.backends._cuda_dtypes import LIMITS, UNSUPPORTED_ON_ROCM
from wherry.backends.cuda import BEYOND_CPU
from wherry.units import GIB, KIB, MIB

# What the ROCm 7.1 wheels are built for (PYTORCH_ROCM_ARCH in pytorch/pytorch, .ci/manywheel/build_rocm.sh).
_ARCHITECTURES = (
    *("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"),  # Instinct and before
    *("gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201"),  # Radeon
)

# Common GPUs by short name. Compute units, memory, bus and caches:
# https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html . What torch makes of them: the links.
_PROFILES = {
    # One of the two dies of the module: each is a device of its own.
    "mi250x": Profile(
        "AMD Instinct MI250X",
        64 * GIB,
        {
            "major": 9,
            "minor": 0,
            "multi_processor_count": 110,
            "L2_cache_size": 8 * MIB,
            "clock_rate": 1_700_000,
            "memory_clock_rate": 1_600_000,
            "memory_bus_width": 4096,
            "gcnArchName": "gfx90a:sramecc+:xnack-",
        },
    ),
    "mi300x": Profile("AMD Instinct MI300X", 196592 * MIB),
    # Compute units are counted in pairs on RDNA. https://github.com/ROCm/legacy-rocm-build/issues/2866 (rocminfo)
    "rx7900xtx": Profile(
        "Radeon RX 7900 XTX",
        24 * GIB,
        {
            "major": 11,
            "minor": 0,
            "multi_processor_count": 48,
            "warp_size": 32,
            "L2_cache_size": 6 * MIB,
            "clock_rate": 2_371_000,
            "memory_clock_rate": 1_249_000,
            "memory_bus_width": 384,
            "gcnArchName": "gfx1100",
        },
    ),
}


class Rocm(Backend):
    name = "rocm"
    device_type = "cuda"
    title = "AMD ROCm"
    namespace = "torch.cuda"
    aliases = ("amd", "hip")
    priority = 39  # never met together with cuda: a torch is built for one of them
    visibility = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
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
        distributed="nccl",  # by name; the library behind it is RCCL
    )
    wording = Wording(
        check_prefix="CUDA",
        tensor_type="torch.cuda",
        lazy_init=("AssertionError", "Torch not compiled with CUDA enabled"),
        # https://github.com/pytorch/pytorch/issues/175431: "HIP" in front, the hint names the CUDA variable.
        out_of_memory=(
            "OutOfMemoryError",
            (
                "HIP out of memory. Tried to allocate {tried}. GPU {index} has a total capacity of {total} of which {free} is "
                "free. Of the allocated memory {allocated} is allocated by PyTorch, and {reserved} is reserved by PyTorch but "
                "unallocated. If reserved but unallocated memory is large try setting "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
                "Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
                "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
            ),
        ),
    )
    # native_functions.yaml shows all of its kernels. Without one, the dispatcher speaks.
    kernels = Kernels(key="CUDA", limits=LIMITS, unsupported=UNSUPPORTED_ON_ROCM)
    # AMD Instinct MI300X as torch.cuda.get_device_properties prints it, down to the L2 of one compute die out of eight:
    # https://github.com/ROCm/legacy-rocm-build/issues/4203 ; wavefronts and LDS are those of its CDNA 3 architecture.
    virtual = VirtualDevice(
        name="AMD Instinct MI300X",
        total_memory=196592 * MIB,
        max_count=16,
        profiles=_PROFILES,
        beyond_cpu=BEYOND_CPU,  # the same kernels, translated
        highest_priority=-1,  # hipDeviceGetStreamPriorityRange: 1 to -1
        architectures=_ARCHITECTURES,
        libraries={"cudnn": 3_005_001, "nccl": (2, 27, 7)},  # MIOpen and RCCL under the names of NVIDIA's
        constants={
            "torch.version.cuda": None,
            "torch.cuda.has_magma": True,
            # Without the hash of the compiler since https://github.com/pytorch/pytorch/pull/168097
            "torch.version.hip": "7.1.25421",
            "torch.version.rocm": "7.1.0",  # the attribute exists since torch 2.10
            "torch.version.xpu": None,
        },
        properties={
            "major": 9,
            "minor": 4,
            "multi_processor_count": 304,
            "max_threads_per_block": 1024,
            "max_threads_per_multi_processor": 2048,
            "regs_per_multiprocessor": 65536,
            "warp_size": 64,
            "L2_cache_size": 4 * MIB,
            "shared_memory_per_block": 64 * KIB,
            "shared_memory_per_block_optin": 64 * KIB,
            "shared_memory_per_multiprocessor": 64 * KIB,
            "clock_rate": 2_100_000,  # kHz
            "memory_clock_rate": 1_300_000,  # kHz
            "memory_bus_width": 8192,  # bits
            "is_integrated": 0,
            "is_multi_gpu_board": 0,
            "pci_domain_id": 0,
            "pci_bus_id": 1,
            "pci_device_id": 0,
            "gcnArchName": "gfx942:sramecc+:xnack-",
        },
    )
    quirks = (
        Quirk(
            what='torch.device("rocm") is refused, torch.device("hip") parses but nothing can be allocated on it',
            since="2.0",
            source="https://docs.pytorch.org/docs/2.13/notes/hip.html",
        ),
        Quirk(
            what="out-of-memory errors name variables of CUDA",
            since="2.9",
            source="https://github.com/pytorch/pytorch/issues/175431",
        ),
        Quirk(
            what="L2_cache_size is that of one compute die, not of the device",
            since="2.6",
            source="https://github.com/ROCm/legacy-rocm-build/issues/4203",
        ),
    )

    def count(self) -> int:
        import torch

        if not torch.version.hip or not torch.cuda.is_available():
            return 0
        return torch.cuda.device_count()

    def look(self) -> Presence:
        import torch

        if not torch.version.hip:
            return Presence(State.ABSENT, f"torch {torch.__version__} is not built for ROCm")
        count = self.count()
        if count:
            names = tuple(torch.cuda.get_device_name(i) for i in range(count))
            return Presence(State.PRESENT, f"HIP {torch.version.hip}", count, names)
        return why_unusable(
            torch.cuda.init,
            absent=("No HIP GPUs are available", "no ROCm-capable device is detected"),
            hidden_by=self.hidden_by(),
        )

    def memory(self, index: int) -> Memory | None:
        import torch

        free, total = torch.cuda.mem_get_info(index)
        return Memory(free=free, total=total)


BACKEND = Rocm()
