"""Intel GPUs.

Asked through   torch.xpu only.          Not knowable   link speed to the host, unless measured.
Sources         torch/xpu/__init__.py and memory.py (torch 2.13); each quirk below has its own.
"""

from __future__ import annotations

from typing import Any

from wherry.backends._backend import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    QUANTIZED,
    Backend,
    Capabilities,
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
from wherry.units import GIB, KIB, MIB

# Common GPUs by short name: https://www.intel.com/content/www/us/en/ark.html . Arc's vector engines are counted as EUs.
_PROFILES = {
    "a770": Profile(
        "Intel(R) Arc(TM) A770 Graphics",
        16 * GIB,
        {
            "device_id": 0x56A0,
            "max_compute_units": 512,
            "gpu_eu_count": 512,
            "gpu_subslice_count": 32,
            "last_level_cache_size": 16 * MIB,
            "local_mem_size": 64 * KIB,
            "max_num_sub_groups": 128,
            "memory_clock_rate": 2000,
            "memory_bus_width": 256,
            "sub_group_sizes": (8, 16, 32),
            "has_fp64": False,  # https://github.com/intel/torch-xpu-ops/issues/1742
        },
    ),
    "b580": Profile(
        "Intel(R) Arc(TM) B580 Graphics",
        12 * GIB,
        {
            "device_id": 0xE20B,
            "max_compute_units": 160,
            "gpu_eu_count": 160,
            "gpu_subslice_count": 20,
            "last_level_cache_size": 18 * MIB,
            "memory_clock_rate": 2375,
            "memory_bus_width": 192,
        },
    ),
    "max1550": Profile("Intel(R) Data Center GPU Max 1550", 65520 * MIB),
}


class Xpu(Backend):
    name = device_type = "xpu"
    title = "Intel XPU"
    namespace = "torch.xpu"
    aliases = ("intel", "arc")
    priority = 20
    visibility = ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR")
    capabilities = Capabilities(
        # float64 and complex128 depend on the device: see can_hold and the quirk.
        dtypes=FLOATS | {"float64", "float8_e4m3fn", "float8_e5m2"} | COMPLEX | INTEGERS | QUANTIZED,
        streams=True,
        timed_events=True,
        graphs=True,  # torch.xpu.XPUGraph, since 2.13
        pinned_memory=True,
        non_blocking=True,
        autocast_dtypes=("float16", "bfloat16"),
        autocast_default="float16",
        grad_scaler=True,
        foreach_default=True,
        fused_optimizers=("Adam", "AdamW", "SGD"),
        compile=Maturity.MATURE,
        distributed="xccl",
    )
    wording = Wording(
        check_prefix="XPU",
        tensor_type="torch.xpu",
        lazy_init=("AssertionError", "Torch not compiled with XPU enabled"),  # torch/xpu/__init__.py, _lazy_init
        # https://github.com/intel/torch-xpu-ops/issues/3011
        out_of_memory=(
            "OutOfMemoryError",
            (
                "XPU out of memory. Tried to allocate {tried}. GPU {index} has a total capacity of {total} of which {free} is "
                "free. Of the allocated memory {allocated} is allocated by PyTorch, and {reserved} is reserved by PyTorch but "
                "unallocated. Please use `empty_cache` to release all unoccupied cached memory."
            ),
        ),
    )
    # One tile of a Data Center GPU Max 1550, the device Intel's own test machines report with torch 2.13:
    # https://github.com/intel/torch-xpu-ops/issues/3889
    virtual = VirtualDevice(
        name="Intel(R) Data Center GPU Max 1550",
        total_memory=65520 * MIB,
        max_count=16,
        constants={
            "torch.version.cuda": None,
            "torch.version.hip": None,
            # Of the 2.13.0+xpu wheel: https://github.com/pytorch/pytorch/pull/194487
            "torch.version.xpu": "20260000",
        },
        properties={
            "platform_name": "Intel(R) oneAPI Unified Runtime over Level-Zero",
            "type": "gpu",
            "vendor": "Intel(R) Corporation",
            "device_id": 0xBD5,
            "driver_version": "1.6.33578+51",
            "local_mem_size": 128 * KIB,
            "last_level_cache_size": 196608 * KIB,
            "max_compute_units": 512,
            "memory_clock_rate": 3200,  # MHz
            "memory_bus_width": 64,  # bits
            "gpu_eu_count": 512,
            "gpu_subslice_count": 64,
            "max_work_group_size": 1024,
            "max_num_sub_groups": 64,
            "sub_group_sizes": (16, 32),
            "has_fp16": True,
            "has_fp64": True,
            "has_atomic64": True,
            "has_bfloat16_conversions": True,
            "has_subgroup_matrix_multiply_accumulate": True,
            "has_subgroup_matrix_multiply_accumulate_tensor_float32": True,
            "has_subgroup_2d_block_io": True,
            "is_integrated_gpu": False,
        },
        profiles=_PROFILES,
        highest_priority=-1,  # c10/xpu/XPUStream.h
        # What the wheels of torch 2.13 are built for ahead of time (TORCH_XPU_ARCH_LIST).
        architectures=("pvc", "xe-lpg", "ats-m150", "bmg", "arl-h", "lnl-m", "ptl-h", "ptl-u"),
    )
    quirks = (
        Quirk(
            what="Arc and many integrated GPUs compute no float64, not even casts: 'Required aspect fp64 is not supported'",
            since="2.5",
            source="https://github.com/intel/torch-xpu-ops/issues/1742",
        ),
        Quirk(
            what="torch.xpu.mem_get_info raises on integrated GPUs, which do not tell what is free",
            since="2.6",
            source="https://github.com/pytorch/pytorch/pull/194487",
        ),
        Quirk(
            what="out of memory may surface as a RuntimeError of Level Zero",
            since="2.9",
            source="https://github.com/pytorch/pytorch/issues/177714",
        ),
    )

    def count(self) -> int:
        import torch

        return torch.xpu.device_count() if torch.xpu.is_available() else 0

    def look(self) -> Presence:
        import torch

        count = self.count()
        if count:
            names = tuple(torch.xpu.get_device_name(i) for i in range(count))
            return Presence(State.PRESENT, f"SYCL {torch.version.xpu}", count, names)
        if torch.version.xpu is None:
            return Presence(State.ABSENT, f"torch {torch.__version__} is built without XPU")
        return why_unusable(
            torch.xpu.init, absent=("No XPU devices are available", "count is zero"), hidden_by=self.hidden_by()
        )

    def memory(self, index: int) -> Memory | None:
        import torch

        try:
            free, total = torch.xpu.mem_get_info(index)
        except RuntimeError:
            # An integrated GPU does not tell (quirk above). What this process left of it is an upper bound.
            total = int(_properties(index).total_memory)
            free = total - torch.xpu.memory_reserved(index)
        return Memory(free=free, total=total)

    def can_hold(self, dtype: str, index: int | None = None) -> bool:
        if index is not None and dtype in ("float64", "complex128"):
            return bool(_properties(index).has_fp64)
        return super().can_hold(dtype, index)


def _properties(index: int) -> Any:
    """torch annotates none of the fields."""
    import torch

    return torch.xpu.get_device_properties(index)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


BACKEND = Xpu()
