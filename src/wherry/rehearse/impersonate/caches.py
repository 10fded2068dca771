"""Answers about devices that torch computes once for a process, and keeps.

Another rehearsal is another machine, so what they hold is dropped whenever a rehearsal begins or ends. The functions
themselves stay in place: dropping is right for whoever took hold of one before.
"""

from __future__ import annotations

import sys

REMEMBERED: dict[str, tuple[str, ...]] = {
    "torch": ("get_device_module",),
    "torch._native.cutedsl_utils": ("_check_runtime_available",),
    "torch._native.helion_utils": ("_check_runtime_available",),
    "torch._native.ops.foreach_mm.impl": ("_check_nvmath_cublaslt",),
    "torch._native.ops.scatter_add.cutedsl_impl": ("_has_sm90_plus", "_is_rocm"),
    "torch._native.ops.topk.cutedsl_impl": ("_min_rows_for_full_wave",),
    "torch._native.triton_utils": ("_check_runtime_available",),
    "torch._utils": ("_get_device_module",),
    "torch._utils_internal": ("max_clock_rate",),
    "torch.accelerator": ("get_device_capability",),
    "torch.backends.mps": ("get_core_count", "get_name", "is_available", "is_macos13_or_newer", "is_macos_or_newer"),
    "torch.cuda": ("_check_bf16_tensor_supported",),
    "torch.nn.attention._fa3": ("_get_device_major",),
    "torch.nn.attention._fa4": ("_get_device_major",),
    "torch.utils._pallas": ("has_cuda_pallas", "has_jax_cuda_backend", "has_pallas"),
    "torch.utils._triton": (
        "_device_supports_tensor_descriptor",
        "_device_supports_tma",
        "has_datacenter_blackwell_tma_device",
        "has_triton",
        "has_triton_stable_tma_api",
        "has_triton_tma_device",
    ),
    "torch.overrides": ("get_default_nowrap_functions",),  # holds the getters of Tensor.grad, which has a stand-in
    "torch.xpu": ("get_device_capability",),
}
"""Functions under `functools.cache`, by module (2.6 to 2.14; tests/rehearse/surface/test_caches.py looks for new ones)."""


WHOLE = ("torch.utils._pallas", "torch.utils._triton")
"""Modules whose every cache is about the device: which compilers of kernels it has."""


def forget() -> None:
    """Drop what torch remembers of the machine. Modules that are not loaded have nothing to drop."""
    tables = [(name, functions) for name, functions in REMEMBERED.items() if name in sys.modules]
    tables += [(name, tuple(vars(sys.modules[name]))) for name in WHOLE if name in sys.modules]
    for name, functions in tables:
        module = sys.modules[name]
        for function in functions:
            clear = getattr(getattr(module, function, None), "cache_clear", None)
            if clear is not None:
                clear()
