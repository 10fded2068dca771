"""The GPU of a Mac with Apple silicon, through Metal Performance Shaders.

Asked through   torch.mps and torch.backends.mps.        Not knowable   what other processes use.
Sources         torch/mps/__init__.py, torch/backends/mps/__init__.py and the strings of libtorch_cpu.dylib (torch 2.13).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from wherry.backends._backend import (
    FLOAT8,
    FLOATS,
    INTEGERS,
    AllocatorSizes,
    Backend,
    Capabilities,
    Kernels,
    Limit,
    Maturity,
    Memory,
    Presence,
    Profile,
    Quirk,
    Span,
    State,
    VirtualDevice,
    Wording,
    printed,
)
from wherry.units import KIB, MIB

# Common chips by short name, in the size of memory each is often sold with. Memory is what the GPU may use of it, MTLDevice's
# recommendedMaxWorkingSetSize: https://github.com/ise-uiuc/magicoder/issues/19 (16 GiB), https://github.com/ggml-org/llama.cpp/issues/1870
# (64 GiB). Cores: https://support.apple.com/en-us/docs/mac
_PROFILES = {
    "m1": Profile("Apple M1", 11_453_246_122, {"core_count": 8}),
    "m2": Profile("Apple M2", 11_453_246_122, {"core_count": 10}),
    "m3max": Profile("Apple M3 Max", 49152 * MIB, {"core_count": 40}),
    "m4pro": Profile("Apple M4 Pro", 18_622_720 * KIB),
}


# aten/src/ATen/mps/EmptyTensor.cpp, `empty_mps`, which every allocation goes through; complex128 as well since 2.12
# (https://github.com/pytorch/pytorch/pull/176985).
_NO_FLOAT64 = (
    "TypeError",
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead.",
)
# aten/src/ATen/native/mps/OperationUtils.mm, `getMPSDataType`, by the names that c10 gives to dtypes. Copy.mm asks it for both
# sides of a copy that casts on the device, which one to the host does and one from the host does not (torch 2.6 to 2.13).
_NO_CAST = {
    "float64": (
        "TypeError",
        "Cannot convert a float64 Tensor to MPS as the MPS framework doesn't support float64. Please use float32 instead.",
    )
} | {
    name: (
        "TypeError",
        f"Trying to convert {printed(name)} to the MPS backend but it does not have support for that dtype.",
    )
    for name in ("complex128", *FLOAT8)
}

_NO_KERNEL = (
    "'{operator}' is not currently implemented for the MPS device. If you want this op to be considered for addition please "
    "comment on https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in missing op as well "
    "as commit hash {commit}."
)
_VARIABLE_TO_SET = (
    "As a temporary fix, you can set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback "
    "for this op. WARNING: this will be slower than running natively on MPS."
)


def _both_larger_or_both_smaller(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """Adaptive pooling is done by a kernel of one size and stride (native/mps/operations/AdaptivePooling.mm)."""
    size, wanted = _sizes(arguments)
    if all(map(operator.ge, size, wanted)) or all(map(operator.le, size, wanted)):
        return None
    text = (
        "Adaptive pool MPS: Input height and width must both be greater than, or equal to, or lesser than output height and "
        "width"
    )
    return "RuntimeError", text


def _average_in_whole_steps(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """As above, and an average cannot overlap: https://github.com/pytorch/pytorch/issues/96056."""
    size, wanted = _sizes(arguments)
    refused = _both_larger_or_both_smaller(arguments)
    if refused is not None:
        return refused
    shrinks = size[0] >= wanted[0]
    larger, smaller = (size, wanted) if shrinks else (wanted, size)
    if not any(few and many % few for many, few in zip(larger, smaller, strict=True)):
        return None
    names = "input sizes must be divisible by output" if shrinks else "output sizes must be divisible by input"
    text = (
        f"Adaptive pool MPS: {names} sizes. Non-divisible input sizes are not implemented on MPS device yet. For now, you can "
        "manually transfer tensor to cpu in this case. Please refer to [this issue]"
        "(https://github.com/pytorch/pytorch/issues/96056)"
    )
    return "RuntimeError", text


def _sizes(arguments: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Height and width of what is pooled, and of what comes of it; a derivative has the latter in the gradient."""
    height, width = arguments["self"].shape[-2:]
    wanted = arguments["output_size"] if "output_size" in arguments else arguments["grad_output"].shape[-2:]
    return (height, width), (wanted[0], wanted[-1])


def _no_half_in_three_dimensions(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """native/mps/operations/Convolution.mm (strings of libtorch_cpu.dylib, torch 2.6 to 2.14)."""
    image = arguments["input"]
    if arguments["transposed"] and image.dim() == 5 and str(image.dtype) in ("torch.float16", "torch.bfloat16"):
        return "RuntimeError", "ConvTranspose 3D with BF16 or FP16 types is not supported on MPS"
    return None


class Mps(Backend):
    name = device_type = "mps"
    title = "Apple MPS"
    namespace = "torch.mps"
    aliases = ("apple", "metal", "mac")
    priority = 30
    capabilities = Capabilities(
        # No float64 and no complex128: allocation raises TypeError. No float8: bytes of it can be there, casts are refused.
        dtypes=FLOATS | INTEGERS | {"complex32", "complex64"},
        streams=False,  # there is one
        timed_events=True,
        graphs=False,
        pinned_memory=False,  # before 2.14, where the allocator exists but DataLoader still refuses it
        non_blocking=True,
        autocast_dtypes=("float16", "bfloat16"),
        autocast_default="float16",
        grad_scaler=True,  # since 2.8
        foreach_default=False,
        fused_optimizers=("Adam", "AdamW", "SGD"),
        compile=Maturity.PROTOTYPE,  # since 2.8: see compiles
        distributed="gloo",  # mapped to it, but collectives on its tensors raise
    )
    wording = Wording(
        check_prefix=None,  # no check is generated for MPS (torchgen/gen.py, device_guard)
        tensor_type="torch.mps",
        # torch/csrc/utils/device_lazy_init.h, and aten/src/ATen/Context.h for what moves.
        lazy_init=("RuntimeError", "PyTorch is not linked with support for mps devices"),
        # The rest of the original lists the kernels of the very build.
        absent_alloc=(
            "NotImplementedError",
            (
                "Could not run 'aten::empty.memory_format' with arguments from the 'MPS' backend. This could be because the "
                "operator doesn't exist for this backend, or was omitted during the selective/custom build process (if using "
                "custom build). If you are a Facebook employee using PyTorch on mobile, please visit "
                "https://fburl.com/ptmfixes for possible resolutions."
            ),
        ),
        # aten/src/ATen/mps/MPSAllocator.mm; a plain RuntimeError.
        out_of_memory=(
            "RuntimeError",
            (
                "MPS backend out of memory (MPS allocated: {allocated}, other allocations: {other}, max allowed: {limit}). "
                "Tried to allocate {tried} on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit "
                "for memory allocations (may cause system failure)."
            ),
        ),
        no_dtype={"float64": _NO_FLOAT64, "complex128": _NO_FLOAT64},
        no_cast=_NO_CAST,
    )
    # aten/src/ATen/mps/MPSFallback.mm. Collectives have a text of their own since 2.11 (strings of libtorch_cpu.dylib).
    kernels = Kernels(
        key="MPS",
        falls_back={
            "embedding_renorm_": Span(),
            "linalg_svd": Span(until="2.13"),
            "linalg_svd.U": Span(until="2.13"),
            "col2im": Span(until="2.7"),
            "upsample_nearest3d.vec": Span(until="2.7"),
        },
        error=("NotImplementedError", f"The operator {_NO_KERNEL} {_VARIABLE_TO_SET}"),
        error_by_namespace={
            "c10d": (
                "NotImplementedError",
                f"The distributed operator {_NO_KERNEL} Please note, that distributed operators can not fall back to CPU",
            )
        },
        variable="PYTORCH_ENABLE_MPS_FALLBACK",
        warning=(
            "The operator '{operator}' is not currently supported on the MPS backend and will fall back to run on the CPU. "
            "This may have performance implications. (Triggered internally at aten/src/ATen/mps/MPSFallback.mm.)"
        ),
        limits={
            "_adaptive_avg_pool2d": Limit(_average_in_whole_steps),
            "_adaptive_avg_pool2d_backward": Limit(_average_in_whole_steps),
            # https://github.com/pytorch/pytorch/pull/190065
            "adaptive_max_pool2d": Limit(_both_larger_or_both_smaller, Span(until="2.13")),
            "adaptive_max_pool2d_backward": Limit(_both_larger_or_both_smaller, Span(until="2.13")),
            "convolution": Limit(_no_half_in_three_dimensions, seldom=True),
        },
        source="initializers of libtorch_cpu.dylib, torch 2.6 to 2.14, read in November 2026",
    )
    # What torch.mps.recommended_max_memory() says on a Mac with 24 GiB (17.76 GiB), a size the M4 Pro starts at:
    # https://github.com/pytorch/pytorch/pull/189215 and https://github.com/sgl-project/sglang/pull/29949
    virtual = VirtualDevice(
        name="Apple M4 Pro",
        total_memory=18_622_720 * KIB,
        max_count=1,
        constants={
            "torch.version.cuda": None,
            "torch.version.hip": None,
            "torch.version.xpu": None,
        },
        properties={"core_count": 16},
        profiles=_PROFILES,
        # aten/src/ATen/mps/MPSAllocator.h (torch 2.13): heaps in the place of segments.
        allocator=AllocatorSizes(small_segment=8 * MIB, large_segment=32 * MIB),
        # aten/src/ATen/native/mps/operations/SummaryOps.mm: the dtype of the weights, which are cast where it is not among three.
        narrower={"bincount": {**dict.fromkeys(INTEGERS | {"bfloat16"}, "int32"), "float16": "float16"}},
    )
    quirks = (
        Quirk(
            what="operators without a kernel raise NotImplementedError; PYTORCH_ENABLE_MPS_FALLBACK=1 sends them to the "
            "CPU, but only if it is set before torch is imported",
            since="1.12",
            source="https://docs.pytorch.org/docs/stable/mps_environment_variables.html",
        ),
        Quirk(
            what="a D2H copy with non_blocking=True may hold garbage until torch.mps.synchronize()",
            since="2.5",
            source="https://github.com/pytorch/pytorch/issues/139550",
        ),
        Quirk(
            what="free memory is what this process has left of the recommended working set; others' use is not seen",
            since="2.5",
            source="https://github.com/pytorch/pytorch/pull/128289",
        ),
        Quirk(
            what="float64 and complex128 are refused where a tensor is made, float8 where it is cast; `x.to('cpu', "
            "torch.float64)` casts before it moves, and fails where `x.cpu().double()` does not",
            since="1.12",
            source="https://github.com/pytorch/pytorch/issues/176981",
        ),
        Quirk(
            what="tensors cannot be shared with another process, so DataLoader workers must return CPU tensors",
            since="1.12",
            source="https://github.com/pytorch/pytorch/issues/87688",
        ),
        Quirk(
            what="pinned memory is missing up to 2.13; DataLoader turns pin_memory off with a warning",
            since="1.12",
            source="https://github.com/pytorch/pytorch/issues/86060",
        ),
    )

    def count(self) -> int:
        import torch

        return int(torch.backends.mps.is_available())

    def look(self) -> Presence:
        import torch

        if not torch.backends.mps.is_built():
            return Presence(State.ABSENT, f"torch {torch.__version__} is built without MPS; macOS builds have it")
        if self.count():
            # Not in the oldest torch we support.
            name = torch.backends.mps.get_name() if hasattr(torch.backends.mps, "get_name") else "Apple GPU"
            return Presence(State.PRESENT, "Metal", 1, (name,))
        if not torch.backends.mps.is_macos_or_newer(14, 0):
            return Presence(State.BROKEN, "MPS needs macOS 14 or newer")
        return Presence(State.ABSENT, "Metal shows no device, as in many virtual machines")

    def memory(self, index: int) -> Memory | None:
        import torch

        total = torch.mps.recommended_max_memory()
        return Memory(free=max(0, total - torch.mps.driver_allocated_memory()), total=total)

    def compiles(self) -> Maturity:
        import torch

        # Inductor's code for Metal was announced as a prototype with 2.8: https://github.com/pytorch/pytorch/issues/157957 .
        # Before, torch.compile says "Device mps not supported": https://github.com/pytorch/pytorch/issues/125254
        return self.capabilities.compile if torch.__version__ >= "2.8" else Maturity.NONE


BACKEND = Mps()
