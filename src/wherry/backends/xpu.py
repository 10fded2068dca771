"""Intel GPUs.

Asked through   torch.xpu only.          Not knowable   link speed to the host, unless measured.
Sources         torch/xpu/__init__.py and memory.py (torch 2.13); each quirk below has its own. Kernels are registered by
                https://github.com/intel/torch-xpu-ops, whose release branches are named like those of torch.
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
    Kernels,
    Maturity,
    Memory,
    Presence,
    Profile,
    Quirk,
    Span,
    State,
    VirtualDevice,
    Wording,
    why_unusable,
)
from wherry.units import GIB, KIB, MIB

# Kernels are compiled with -fsycl-fp64-conv-emu (torch-xpu-ops, cmake/BuildFlags.cmake, 2.6 to 2.14): on an Arc of the first
# generation those that only load, store, convert and compare float64 run, the others are refused when they are launched.
# https://github.com/intel/torch-xpu-ops/pull/511, https://github.com/intel/llvm/pull/13912; the text: torch-xpu-ops/issues/1742
_NO_FP64 = ("RuntimeError", "Required aspect fp64 is not supported on the device")
# What is asked first how many work items it takes (comm/DeviceProperties.h, `syclMaxWorkGroupSize`; Reduce.h, SoftMaxKernels.cpp,
# LayerNormKernels.cpp, ...) is refused there: https://github.com/intel/torch-xpu-ops/pull/840 and issues/1150
_NO_KERNEL_FOR_FP64 = ("RuntimeError", "Kernel is incompatible with all devices in devs")
_ASKED_FIRST = """
    sum nansum mean prod norm linalg_vector_norm std std_mean var var_mean max min amax amin aminmax argmax argmin
    softmax softmax_backward_data log_softmax log_softmax_backward_data cumsum cumprod logcumsumexp
    native_batch_norm native_batch_norm_backward native_group_norm native_layer_norm native_layer_norm_backward
""".split()

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
        no_compute={"float64": _NO_FP64, "complex128": _NO_FP64},
        no_compute_by_op=dict.fromkeys(_ASKED_FIRST, _NO_KERNEL_FOR_FP64),
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


def _overloads(names: str, *, since: str | None = None, until: str | None = None) -> dict[str, Span]:
    return dict.fromkeys(names.split(), Span(since, until))


# Up to 2.13 the yaml of torch shows the kernels in oneDNN alone. Those in SYCL are in a second one, of torch-xpu-ops
# (yaml/native/native_functions.yaml), and nearly the same that CUDA has. Where a kernel came, the yaml of torch may show it.
_WITHOUT = (
    # cuDNN, MIOpen, cuSPARSELt, CUTLASS: what has another name on XPU, or none.
    _overloads("""
        _cslt_compress _cslt_sparse_mm _cslt_sparse_mm_search
        _cudnn_ctc_loss _cudnn_ctc_loss.Tensor _cudnn_init_dropout_state _cudnn_rnn _cudnn_rnn_backward
        _cudnn_rnn_flatten_weight _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
        _use_cudnn_ctc_loss _use_cudnn_ctc_loss.Tensor cudnn_affine_grid_generator cudnn_affine_grid_generator_backward
        cudnn_batch_norm cudnn_batch_norm_backward cudnn_convolution cudnn_convolution.out cudnn_convolution_add_relu
        cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler cudnn_grid_sampler_backward
        miopen_batch_norm miopen_batch_norm_backward miopen_convolution miopen_convolution_add_relu miopen_convolution_relu
        miopen_convolution_transpose miopen_depthwise_convolution miopen_rnn miopen_rnn_backward
        _sparse_semi_structured_addmm _sparse_semi_structured_apply _sparse_semi_structured_apply_dense
        _sparse_semi_structured_linear _sparse_semi_structured_mm _sparse_semi_structured_tile _to_sparse_semi_structured
        _mixed_dtypes_linear _triton_multi_head_attention _triton_scaled_dot_attention
    """)
    | _overloads("_cudnn_attention_forward", since="2.7")
    | _overloads("_cudnn_attention_backward cudnn_batch_norm.out", since="2.9")
    | _overloads(
        "_use_miopen_ctc_loss _use_miopen_ctc_loss.Tensor miopen_ctc_loss miopen_ctc_loss.Tensor", since="2.11"
    )
    # Convolutions go to convolution_overrideable, attention to _scaled_dot_product_fused_attention_overrideable.
    | _overloads("""
        _conv_depthwise2d _conv_depthwise2d.out conv_depthwise3d convolution_backward
        _slow_conv2d_backward.grad_input _slow_conv2d_backward.output_mask _slow_conv2d_forward _slow_conv2d_forward.output
        slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d.out slow_conv_transpose3d slow_conv_transpose3d.out
        _efficient_attention_backward _flash_attention_backward
    """)
    | _overloads("_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward", until="2.9")
    | _overloads("_scaled_dot_product_efficient_attention", since="2.7", until="2.10")
    | _overloads("_scaled_dot_product_efficient_attention_backward", until="2.12")
    | _overloads("_fill_mem_eff_dropout_mask_", until="2.10")
    | _overloads("_flash_attention_forward.quantized _scaled_dot_product_flash_attention.quantized", since="2.11")
    | _overloads("_flash_attention_forward_no_dropout_inplace", since="2.12")
    | _overloads("_flash_attention_forward", since="2.13")
    # Matrix products.
    | _overloads("sspaddmm.out")
    | _overloads("_scaled_mm.out", until="2.9")
    | _overloads("_int_mm _int_mm.out", until="2.8")
    | _overloads("_weight_int4pack_mm", until="2.6")
    | _overloads("_weight_int8pack_mm", since="2.9", until="2.9")
    | _overloads(
        "addmm.dtype addmm.dtype_out baddbmm.dtype baddbmm.dtype_out bmm.dtype bmm.dtype_out mm.dtype mm.dtype_out",
        since="2.8",
        until="2.10",
    )
    | _overloads("_scaled_grouped_mm", since="2.7")
    | _overloads("_grouped_mm", since="2.8")
    | _overloads("_scaled_grouped_mm_v2", since="2.10", until="2.13")
    # Linear algebra, beside what falls back.
    | _overloads("_linalg_eigvals linalg_eigvals.out", until="2.7")
    | _overloads("linalg_eig.out linalg_householder_product.out linalg_solve_triangular.out", until="2.8")
    | _overloads("cholesky.out cholesky_inverse.out geqrf.a ormqr.out", until="2.9")
    | _overloads("linalg__powsum _foreach_powsum.Scalar", since="2.11")
    # The rest.
    | _overloads(
        """
        _chunk_cat _chunk_cat.out split_with_sizes_copy.out std.correction_out _fft_c2c.out
        _convert_indices_from_coo_to_csr.out _convert_indices_from_csr_to_coo.out _to_sparse_bsc _to_sparse_bsr _to_sparse_csc
        _foreach_lerp.ScalarList _foreach_lerp_.ScalarList _foreach_max _foreach_rsqrt _foreach_rsqrt_
        _nested_compute_contiguous_strides_offsets _nested_from_padded _nested_tensor_from_mask
        _nested_tensor_from_mask_left_aligned _nested_view_from_buffer _transformer_encoder_layer_fwd
        _upsample_bicubic2d_aa_backward.grad_input _upsample_bilinear2d_aa_backward.grad_input
    """,
        until="2.6",
    )
    | _overloads("_fft_c2r.out _fft_r2c.out _jagged_to_padded_dense_forward", until="2.7")
    | _overloads("nonzero_static nonzero_static.out", until="2.9")
    | _overloads("_padded_dense_to_jagged_forward", until="2.11")
    | _overloads("_fused_rms_norm _fused_rms_norm_backward", since="2.9", until="2.11")
    | _overloads("_fused_adagrad_ _fused_adagrad_.tensor_lr", since="2.9", until="2.12")
    | _overloads("_foreach_clone _philox_key_fold_in _philox_key_split _philox_normal_ _philox_uniform_", since="2.12")
)

# src/ATen/native/xpu/XPUFallback.template, since 2.14 XPUFallback.cpp.
_FALLS_BACK = (
    _overloads("""
        _cholesky_solve_helper _efficient_attention_forward _linalg_eigh.eigenvalues _linalg_svd.U
        _validate_compressed_sparse_indices cholesky_inverse geqrf linalg_cholesky_ex.L linalg_eig
        linalg_householder_product linalg_ldl_factor_ex.out linalg_ldl_solve.out linalg_lstsq.out linalg_lu.out
        linalg_matrix_exp linalg_qr.out lu_unpack.out ormqr triangular_solve.X
    """)
    | _overloads("_linalg_eigvals linalg_eigvals.out", since="2.8")
    | _overloads("hash_tensor.out linalg_eig.out linalg_householder_product.out", since="2.9")
    | _overloads("cholesky_inverse.out geqrf.a ormqr.out", since="2.10")
    | _overloads("cholesky.out", since="2.10", until="2.13")
    | _overloads("cholesky", until="2.13")
    | _overloads("linalg_matrix_sqrth linalg_polar.out", since="2.14")
    | _overloads(
        """
        _fft_c2c _scaled_dot_product_efficient_attention _to_sparse_csr _upsample_bicubic2d_aa.out
        _upsample_bilinear2d_aa.out index_reduce.out
    """,
        until="2.6",
    )
    | _overloads(
        """
        _fft_c2r _fft_r2c _linalg_det.result _linalg_slogdet.sign _linalg_solve_ex.result linalg_lu_factor_ex.out
        linalg_lu_solve.out
    """,
        until="2.7",
    )
    | _overloads("linalg_inv_ex.inverse", until="2.8")
    | _overloads("_scaled_mm", until="2.9")
    | _overloads("dot vdot", until="2.10")
    | _overloads("linalg_solve_triangular", until="2.11")
    | _overloads("linalg_solve_triangular.out", since="2.9", until="2.11")
    | _overloads("_flash_attention_forward", until="2.12")
)

_ALSO = (
    # aten/src/ATen/native/mkldnn/xpu/Conv.cpp and Blas.cpp, and src/ATen/native/xpu/Resize.cpp of torch-xpu-ops.
    _overloads(
        "convolution_overrideable convolution_backward_overrideable tensordot.out _copy_from _copy_from_and_resize"
    )
    # The second yaml.
    | _overloads("histogram.bin_ct histogram.bin_ct_out histogram.bins_tensor histogram.bins_tensor_out")
    | _overloads("_empty_affine_quantized _empty_per_channel_affine_quantized", until="2.13")
    | _overloads("quantized_max_pool2d", since="2.7", until="2.13")
    | _overloads("_safe_softmax", since="2.7")
    | _overloads("_pin_memory is_pinned", until="2.11")
)

_TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, "


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
    # src/ATen/native/xpu/XPUFallback.template of torch-xpu-ops: https://github.com/intel/torch-xpu-ops/issues/1328 and /1887.
    kernels = Kernels(
        key="XPU",
        shares="CUDA",
        shares_in=Span(until="2.13"),
        also=_ALSO,
        without=_WITHOUT,
        falls_back=_FALLS_BACK,
        error=(
            "NotImplementedError",
            (
                "The operator '{operator}' is not currently implemented for the XPU device. Please open a feature on "
                "https://github.com/intel/torch-xpu-ops/issues. You can set the environment variable "
                "`PYTORCH_ENABLE_XPU_FALLBACK=1` to use the CPU implementation as a fallback for XPU unimplemented "
                "operators. WARNING: this will bring unexpected performance compared with running natively on XPU."
            ),
        ),
        variable="PYTORCH_ENABLE_XPU_FALLBACK",
        warning=(
            "Aten Op fallback from XPU to CPU happends. This may have performance implications. If need debug the fallback "
            "ops please set environment variable `PYTORCH_DEBUG_XPU_FALLBACK=1`  (Triggered internally at "
            "/pytorch/build/xpu/ATen/RegisterXPU_0.cpp.)"
        ),
        # https://github.com/intel/torch-xpu-ops/pull/2627; with the index since 2.13.
        one_device={
            _TWO_DEVICES + "{first.type} and {second.type}! (Operator {operator})": Span("2.11", "2.12"),
            _TWO_DEVICES + "{first} and {second}! (Operator {operator})": Span("2.13"),
        },
        source="release branches 2.6 to 2.14 of torch-xpu-ops and the native_functions.yaml of torch 2.6.0 to 2.14.1, read "
        "in November 2026",
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
            what="Arc of the first generation computes no float64: 'Required aspect fp64 is not supported on the device', or, of "
            "sums and softmax, 'Kernel is incompatible with all devices in devs'; copies, casts and comparisons work. So "
            "GradScaler fails, which computes a reciprocal in float64",
            since="2.5",
            source="https://github.com/intel/torch-xpu-ops/issues/1742",
        ),
        Quirk(
            what="operators without a kernel raise NotImplementedError; PYTORCH_ENABLE_XPU_FALLBACK=1 sends them to the CPU, "
            "but only if it is set before torch is imported",
            since="2.4",
            source="https://github.com/intel/torch-xpu-ops/issues/1328",
        ),
        Quirk(
            what="some operators, such as torch.linalg.qr and svd, go through the CPU without being asked to; the one warning in "
            "a process names none, each is named with PYTORCH_DEBUG_XPU_FALLBACK=1; PYTORCH_XPU_FALLBACK_OP=abs.out,... sends "
            "more there",
            since="2.4",
            source="https://github.com/pytorch/pytorch/issues/126488",
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
