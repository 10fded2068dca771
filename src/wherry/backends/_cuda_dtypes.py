"""What CUDA's kernels refuse although the CPU's take it: dtypes, and a few arguments of linear algebra.

`UNSUPPORTED` is `Kernels.unsupported` of CUDA; `UNSUPPORTED_ON_ROCM` is that of ROCm, whose kernels are the same sources,
translated. Only convolutions differ: MIOpen is asked for floating dtypes alone, cuDNN for all
(aten/src/ATen/native/Convolution.cpp, `use_miopen` and `use_cudnn`).

Of several kernels that an operator may lead to, the first whose `when` holds is the one; the usual one stands last.

Sources    the host code of torch 2.13.0+cu130, which was asked by scripts/cuda_dtypes.py. Where a dtype stands here that the
           CPU refuses too, the words are CUDA's. The wheels of 2.6 to 2.14 hold the same names of kernels. Left out: the
           backward of what has no gradient, such as integers; sparse tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from wherry.backends._backend import COMPLEX, FLOAT8, INTEGERS, Limit, Unsupported

_Arguments = Mapping[str, Any]

_HALVES = frozenset({"float16", "bfloat16"})
_NO_PRODUCT = INTEGERS | FLOAT8 | {"complex32"}  # cuBLAS has none
_NO_FLOATS = INTEGERS | FLOAT8 | COMPLEX
_NO_ORDER = COMPLEX | {"bool"}


def _refused(
    dtypes: frozenset[str], kernel: str, when: Callable[[_Arguments], bool] | None = None, *, empty: bool = False
) -> tuple[Unsupported, ...]:
    return (Unsupported(dtypes, kernel, when=when, empty=empty),)


def _even_empty(
    dtypes: frozenset[str], kernel: str, when: Callable[[_Arguments], bool] | None = None
) -> tuple[Unsupported, ...]:
    """Of a kernel that looks at the dtype before it sees that there is nothing to compute."""
    return _refused(dtypes, kernel, when, empty=True)


def _is_resampled(arguments: _Arguments) -> bool:
    """An image that keeps its size is copied, whatever its dtype."""
    return list(arguments["self"].shape[-2:]) != list(arguments["output_size"])


def _in_half(arguments: _Arguments) -> bool:
    """Half and float meet in float."""
    import torch

    return torch.result_type(arguments["self"], arguments["other"]).itemsize == 2


def _is_summed(arguments: _Arguments) -> bool:
    """Over the dimension that is unrolled, `_trilinear` adds one product after the other."""
    return bool(set(arguments["sumdim"]) - {arguments.get("unroll_dim", 1)})


def _is_maximum(arguments: _Arguments) -> bool:
    return arguments["mode"] == 2  # EmbeddingBag's number of it


def _is_cubic(arguments: _Arguments) -> bool:
    return arguments["input"].dim() == 5


def _is_depthwise(arguments: _Arguments) -> bool:
    groups = arguments["groups"]
    return not arguments["transposed"] and arguments["input"].shape[1] == groups > 1 == arguments["weight"].shape[1]


def _unless_by_cudnn(known: Unsupported) -> Unsupported:
    """The same of a kernel that is asked only where cuDNN is not."""

    def when(arguments: _Arguments) -> bool:
        import torch

        is_padded_far = any(map(operator.ge, arguments["output_padding"], arguments["stride"]))
        is_asked = torch.backends.cudnn.enabled and not (arguments["transposed"] and is_padded_far)
        return not is_asked and (known.when is None or known.when(arguments))

    return replace(known, when=when)


# aten/src/ATen/native/Convolution.cpp, `_select_conv_backend`. One dimension is computed as two.
_DEPTHWISE = (
    Unsupported(INTEGERS, "conv_depthwise3d", when=lambda a: _is_depthwise(a) and _is_cubic(a)),
    Unsupported(INTEGERS, "conv_depthwise2d_forward_cuda", when=_is_depthwise),
)
_WITHOUT_LIBRARY = (
    Unsupported(INTEGERS, "slow_conv_transpose3d_out_cuda", when=lambda a: a["transposed"] and _is_cubic(a)),
    Unsupported(INTEGERS, "slow_conv_transpose2d_out_cuda", when=lambda a: a["transposed"]),
    Unsupported(INTEGERS, "slow_conv_dilated<>", when=lambda a: _is_cubic(a) or max(a["dilation"]) > 1),
    Unsupported(INTEGERS, "slow_conv2d_cuda"),
)
_CUDNN = (
    # aten/src/ATen/cudnn/Descriptors.cpp knows these integers, and cuDNN has no algorithm for them:
    # https://github.com/pytorch/pytorch/issues/152992
    Unsupported(
        frozenset({"uint8", "int8", "int32"}),
        "cudnn_convolution",
        ("RuntimeError", "GET was unable to find an engine to execute this computation"),
    ),
    Unsupported(
        INTEGERS, "cudnn_convolution", ("RuntimeError", "getCudnnDataTypeFromScalarType() not supported for {dtype}")
    ),
)
_SHARED: Mapping[str, tuple[Unsupported, ...]] = {
    **dict.fromkeys(("mm", "addmm", "addbmm"), _refused(_NO_PRODUCT, "addmm_cuda")),
    **dict.fromkeys(("bmm", "baddbmm"), _refused(_NO_PRODUCT, "baddbmm_cuda")),
    "_trilinear": _refused(_NO_PRODUCT, "baddbmm_cuda", _is_summed),
    **dict.fromkeys(("mv", "addmv"), _refused(_NO_PRODUCT, "addmv_impl_cuda")),
    **dict.fromkeys(("dot", "vdot"), _even_empty(_NO_PRODUCT, "dot")),
    "max_pool2d_with_indices": _refused(_NO_FLOATS, "max_pool2d_with_indices_out_cuda_frame"),
    "max_pool3d_with_indices": _refused(_NO_FLOATS, "max_pool3d_with_indices_out_frame"),
    "avg_pool2d": _refused(_NO_FLOATS, "avg_pool2d_out_cuda_frame"),
    "avg_pool3d": _even_empty(_NO_FLOATS, "avg_pool3d_out_cuda"),
    "upsample_bilinear2d": _even_empty(_NO_FLOATS, "upsample_bilinear2d_out_frame", _is_resampled),
    "upsample_bicubic2d": _even_empty(_NO_FLOATS, "upsample_bicubic2d_out_frame"),
    # Both say so.
    "_upsample_bilinear2d_aa": _even_empty(_NO_FLOATS, "upsample_bilinear2d_out_frame"),
    "_upsample_bicubic2d_aa": _even_empty(_NO_FLOATS, "upsample_bilinear2d_out_frame"),
    "angle": _even_empty(_HALVES | FLOAT8, "angle_cuda"),
    "igamma": _even_empty(_HALVES, "igamma_cuda", _in_half),
    "igammac": _even_empty(_HALVES, "igammac_cuda", _in_half),
    "histc": (
        Unsupported(frozenset({"float16"}), "histc", ("RuntimeError", "HalfTensor is not supported"), empty=True),
        *_even_empty(COMPLEX | FLOAT8 | {"bool", "uint16", "uint32", "uint64", "bfloat16"}, "histc"),
    ),
    "index_reduce": (
        *_even_empty(_NO_ORDER, "index_reduce_func_cuda_exclude_input_init", lambda a: not a.get("include_self", True)),
        *_even_empty(_NO_ORDER, "index_reduce"),
    ),
    "scatter_reduce": _refused(_NO_ORDER, "cuda_scatter_gather_base_kernel_func", lambda a: a["reduce"] != "sum"),
    "scatter.reduce": _refused(_NO_ORDER, "cuda_scatter_gather_base_kernel_func", lambda a: a["reduce"] == "multiply"),
    "scatter.value_reduce": _refused(
        _NO_ORDER, "cuda_scatter_fill_base_kernel_reduce_multiply", lambda a: a["reduce"] == "multiply"
    ),
    "native_dropout_backward": _even_empty(_NO_FLOATS, "masked_scale"),
    "embedding_renorm": _refused(_NO_FLOATS, "embedding_renorm_cuda_"),
    **dict.fromkeys(
        ("_embedding_bag_backward", "_embedding_bag_dense_backward"),
        _even_empty(_NO_FLOATS | {"bfloat16"}, "embedding_bag_backward_cuda_max", _is_maximum),
    ),
}

UNSUPPORTED = {**_SHARED, "convolution": _DEPTHWISE + tuple(map(_unless_by_cudnn, _WITHOUT_LIBRARY)) + _CUDNN}
UNSUPPORTED_ON_ROCM = {**_SHARED, "convolution": _DEPTHWISE + _WITHOUT_LIBRARY}


def _only_gels(arguments: _Arguments) -> tuple[str, str] | None:
    if arguments.get("driver") in (None, "gels"):
        return None
    return "RuntimeError", "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA"


def _not_hermitian(arguments: _Arguments) -> tuple[str, str] | None:
    if not arguments.get("hermitian") or not arguments["LD"].is_complex():
        return None
    text = "torch.linalg.ldl_solve: complex tensors with hermitian=True flag are not supported on CUDA."
    return "RuntimeError", text


LIMITS: Mapping[str, Limit] = {
    "linalg_lstsq": Limit(_only_gels, seldom=True),
    "linalg_ldl_solve": Limit(_not_hermitian, seldom=True),
}
"""`Kernels.limits`: aten/src/ATen/native/BatchLinearAlgebra.cpp and native/cuda/linalg/BatchLinearAlgebra.cpp."""
