"""What a rehearsal does with every name of the surface: WORKS, or HARMLESS. What is refused stands in the product.

WORKS     it answers and acts as on the device: impersonated, or right by itself because what it asks is impersonated
HARMLESS  it needs no device: constants, classes of errors, switches of the CPU side, settings that only the chip would
          notice, measurements that answer "nothing" in words

A method of torch.Tensor that is an operator needs no entry: the dispatch mode sees it.
"""

from __future__ import annotations

_GENERATOR = "clone_state device get_offset get_state initial_seed manual_seed seed set_offset set_state"
_STREAM = "device device_index device_type is_capturing native_handle query record_event stream_id synchronize"
_RANDOM = "get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all set_rng_state set_rng_state_all"
_MEMORY = (
    "MemPool empty_cache get_per_process_memory_fraction max_memory_allocated max_memory_reserved mem_get_info "
    "memory_allocated memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict "
    "reset_accumulated_memory_stats reset_peak_memory_stats set_per_process_memory_fraction use_mem_pool"
)
_DEVICES = (
    "StreamContext can_device_access_peer current_device current_stream default_generators device device_count "
    "device_memory_used device_of get_arch_list get_device_capability get_device_name get_device_properties "
    "get_gencode_flags get_stream_from_external init is_available is_bf16_supported is_initialized is_tf32_supported "
    "set_device set_stream stream synchronize"
)
_DTYPES = "BFloat16 Byte Char Double Float Half Int Long Short"

WORKS: dict[str, str] = {
    "torch.Stream": f"{_STREAM} wait_event wait_stream",
    "torch.Event": "device elapsed_time event_id query record synchronize wait",
    "torch.Generator": f"{_GENERATOR} graphsafe_get_state graphsafe_set_state",
    "torch.UntypedStorage": (
        "bfloat16 bool byte char clone complex_double complex_float copy_ cpu cuda data_ptr device double filename fill_ float "
        "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz from_buffer from_file get_device half int is_cuda is_pinned "
        "is_shared long mps nbytes new pin_memory resizable resize_ share_memory_ short size to tolist type untyped"
    ),
    "torch.Tensor": (
        "H T apply_ as_subclass bfloat16 bool byte cdouble cfloat char const_data_ptr data_ptr double float grad_fn half int "
        "is_cpu is_cuda is_mps is_shared is_xpu long lu map2_ map_ module_load new new_tensor numpy register_hook "
        "register_post_accumulate_grad_hook requires_grad share_memory_ short storage storage_type to_sparse_coo tolist "
        "type unique untyped_storage xpu"
    ),
    "torch.accelerator": (
        "current_accelerator current_device_idx current_device_index current_stream device_count device_index "
        "get_device_capability is_available set_device_idx set_device_index set_stream synchronize"
    ),
    "torch.accelerator.graphs": "Graph",
    "torch.accelerator.memory": (
        "empty_cache get_memory_info max_memory_allocated max_memory_reserved memory_allocated memory_reserved memory_stats "
        "reset_accumulated_memory_stats reset_peak_memory_stats"
    ),
    "torch.accelerator.random": "get_rng_state get_rng_state_all initial_seed",
    "torch.amp.autocast_mode": "autocast autocast_decorator custom_bwd custom_fwd is_autocast_available",
    "torch.amp.grad_scaler": "GradScaler",
    "torch.backends.cuda": (
        "cufft_plan_cache is_built is_ck_sdpa_available is_flash_attention_available preferred_blas_library "
        "preferred_linalg_library preferred_rocm_fa_library"
    ),
    "torch.backends.cudnn": "is_acceptable is_available version",
    "torch.backends.cusparselt": "is_available version",
    "torch.backends.mps": "get_core_count get_name is_available is_built is_macos13_or_newer is_macos_or_newer",
    "torch.cuda": f"{_DEVICES} cudart check_error default_stream get_sync_debug_mode set_sync_debug_mode "
    + " ".join(f"{d}Tensor" for d in _DTYPES.split())
    + " BoolTensor",
    "torch.cuda.CUDAGraph": "capture_begin capture_end instantiate pool register_generator_state replay reset",
    "torch.cuda.Event": "cuda_event device elapsed_time event_id query record synchronize wait",
    "torch.cuda.MemPool": "allocator id snapshot use_count",
    "torch.cuda.Stream": f"{_STREAM} cuda_stream priority priority_range wait_event wait_stream",
    "torch.cuda.amp.autocast_mode": "autocast custom_bwd custom_fwd",
    "torch.cuda.amp.common": "amp_definitely_not_available",
    "torch.cuda.amp.grad_scaler": "GradScaler",
    "torch.cuda.comm": "broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
    "torch.cuda.graphs": "CUDAGraph graph graph_pool_handle is_current_stream_capturing make_graphed_callables",
    "torch.cuda.memory": f"{_MEMORY} MemPoolContext get_allocator_backend max_memory_cached memory_cached memory_summary "
    "reset_max_memory_allocated reset_max_memory_cached",
    "torch.cuda.nccl": "is_available version",
    "torch.cuda.random": _RANDOM,
    "torch.cuda.sparse": " ".join(f"{d}Tensor" for d in _DTYPES.split()),
    "torch.cuda.streams": "Event ExternalStream Stream",
    "torch.mps": (
        "current_allocated_memory device_count driver_allocated_memory empty_cache get_rng_state is_available manual_seed "
        "recommended_max_memory seed set_per_process_memory_fraction set_rng_state synchronize"
    ),
    "torch.mps.event": "Event",
    "torch.mps.event.Event": "elapsed_time query record synchronize wait",
    "torch.xpu": f"{_DEVICES} get_stream",
    "torch.xpu.Event": "device elapsed_time event_id query record sycl_event synchronize wait",
    "torch.xpu.Stream": f"{_STREAM} priority priority_range sycl_queue wait_event wait_stream",
    "torch.xpu.graphs": "XPUGraph graph graph_pool_handle is_current_stream_capturing make_graphed_callables",
    "torch.xpu.memory": _MEMORY,
    "torch.xpu.random": _RANDOM,
    "torch.xpu.streams": "Event Stream",
}

HARMLESS: dict[str, str] = {
    "torch.Generator": "philox_state",
    "torch.UntypedStorage": "byteswap element_size hpu is_hpu is_sparse is_sparse_csr",
    "torch.Tensor": (
        "align_as align_to cholesky dim_order dtype eig grad_dtype has_names ipu is_ipu is_maia is_meta is_mkldnn is_mtia "
        "is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla itemsize layout lstsq mtia names nbytes ndim ndimension "
        "nelement qr refine_names reinforce rename rename_ shape solve symeig volatile"
    ),
    "torch.accelerator.memory": "empty_host_cache",
    "torch.amp.autocast_mode": "HAS_NUMPY",
    "torch.amp.grad_scaler": "OptState",
    "torch.backends": "ContextProp GenericModule PropModule disable_global_flags flags flags_frozen fp32_precision set_flags",
    "torch.backends.cpu": "get_cpu_capability",
    "torch.backends.cuda": (
        "SDPAParams allow_fp16_bf16_reduction_math_sdp blas_workspace_size cuBLASModule cuFFTPlanCache "
        "cuFFTPlanCacheAttrContextProp cuFFTPlanCacheManager cublas_workspace_size cublaslt_workspace_size cudnn_sdp_enabled "
        "enable_cudnn_sdp enable_flash_sdp enable_math_sdp enable_mem_efficient_sdp flash_sdp_enabled "
        "fp16_bf16_reduction_math_sdp_allowed math_sdp_enabled matmul mem_efficient_sdp_enabled sdp_kernel"
    ),
    "torch.backends.cudnn": "CUDNN_TENSOR_DTYPES CudnnModule benchmark_limit flags set_flags",
    "torch.backends.cudnn.rnn": (
        "ContextProp CudnnRNNModule Unserializable fp32_precision get_cudnn_mode init_dropout_state"
    ),
    "torch.backends.cusparselt": "get_max_alg_id",
    "torch.backends.kleidiai": "is_available",
    "torch.backends.mha": "get_fastpath_enabled set_fastpath_enabled",
    "torch.backends.miopen": "MiopenModule flags set_flags",
    "torch.backends.mkl": "VERBOSE_OFF VERBOSE_ON is_available verbose",
    "torch.backends.mkldnn": (
        "MkldnnModule VERBOSE_OFF VERBOSE_ON VERBOSE_ON_CREATION flags is_acl_available is_available set_flags verbose"
    ),
    "torch.backends.nnpack": "flags is_available set_flags",
    "torch.backends.openmp": "is_available",
    "torch.backends.opt_einsum": "OptEinsumModule enabled flags get_opt_einsum is_available set_flags strategy",
    "torch.backends.python_native": (
        "DSLController PythonNativeModule all_dsls available_dsls disable_dispatch_keys disable_operations "
        "enable_dispatch_keys enable_operations get_dsl_operations is_dsl_disabled is_operation_disabled operations_disabled"
    ),
    "torch.backends.quantized": "QuantizedEngine engine supported_engines",
    "torch.backends.xeon.run_cpu": "REMAINDER create_args format_str main",
    "torch.backends.xnnpack": "XNNPACKEngine enabled",
    "torch.cuda": (
        "CudaError DEVICE_REQUIREMENT DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION DeferredCudaCallError "
        "PYTORCH_RELEASES_CODE_CC cudaStatus has_half has_magma ipc_collect"
    ),
    "torch.cuda.CUDAGraph": "enable_debug_mode",
    "torch.cuda.gds": "is_available",
    "torch.cuda.graph_annotations": "clear_kernel_annotations get_kernel_annotations is_available mark_kernels",
    "torch.cuda.green_contexts": "SUPPORTED",
    "torch.cuda.memory": (
        "caching_allocator_disabled caching_allocator_enable host_memory_stats host_memory_stats_as_nested_dict "
        "list_gpu_processes reset_accumulated_host_memory_stats reset_peak_host_memory_stats"
    ),
    "torch.cuda.nccl": "SUM",
    "torch.cuda.nvtx": "mark range range_end range_pop range_push range_start",
    "torch.cuda.profiler": "DEFAULT_FLAGS profile start stop",
    "torch.cuda.tunable": (
        "enable get_cublaslt_requested_algo_count get_filename get_max_tuning_duration get_max_tuning_iterations get_results "
        "get_rotating_buffer_size get_validators is_enabled read_file record_untuned_enable record_untuned_is_enabled "
        "set_cublaslt_requested_algo_count set_filename set_max_tuning_duration set_max_tuning_iterations "
        "set_numerical_check_tolerances set_rotating_buffer_size tuning_enable tuning_is_enabled write_file write_file_on_exit"
    ),
    "torch.mps.profiler": "is_capturing_metal is_metal_capture_enabled profile start stop",
    "torch.xpu.memory": "list_gpu_processes",
}
