"""Libraries beside a device, as far as programs ask after them: cuDNN, NCCL, cuFFT, cuBLAS, NVTX, the CUDA runtime, tuning.

They compute nothing here. They have versions, take settings and give them back, and mark ranges for a profiler that is
not there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from wherry.rehearse.impersonate.memory import free_and_total
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.impersonate.stand_ins import Virtual, answer, bottom, copies_in, everywhere, nothing, on_type
from wherry.rehearse.state import state_of
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal


def _version(library: str) -> Virtual:
    def version(session: Rehearsal) -> Any:
        virtual = session.backend.virtual
        return None if virtual is None else virtual.libraries.get(library)

    return version


def _has(library: str) -> Virtual:
    version = _version(library)
    return lambda session: version(session) is not None


# -- settings: what was set is what is read


def _setting(name: str, default: Any, *, check: Any = None) -> tuple[Virtual, Virtual]:
    """A getter and a setter of one setting of the rehearsed machine."""

    def get(session: Rehearsal) -> Any:
        return state_of(session).settings.get(name, default)

    def set_(session: Rehearsal, value: Any) -> None:
        if check is not None:
            check(value)
        state_of(session).settings[name] = value

    return get, set_


def _only_default(mode: int) -> None:
    if mode:
        from wherry.rehearse.impersonate.refusals import cannot

        raise cannot("torch.cuda.set_sync_debug_mode", "ops of a rehearsal never wait, so there is no wait to warn of")


_SETTINGS: dict[tuple[str, str], tuple[Virtual, Virtual]] = {
    ("_cuda_get_sync_debug_mode", "_cuda_set_sync_debug_mode"): _setting("sync debug mode", 0, check=_only_default),
    ("_cuda_get_cudnn_benchmark_limit", "_cuda_set_cudnn_benchmark_limit"): _setting("cudnn benchmark limit", 10),
    ("_cuda_getCublasWorkspaceSize", "_cuda_setCublasWorkspaceSize"): _setting("cublas workspace", 8_519_680),
    ("_cuda_getCublasLtWorkspaceSize", "_cuda_setCublasLtWorkspaceSize"): _setting("cublaslt workspace", 8_519_680),
    ("_cuda_tunableop_is_enabled", "_cuda_tunableop_enable"): _setting("tunable", default=False),
    ("_cuda_tunableop_tuning_is_enabled", "_cuda_tunableop_tuning_enable"): _setting("tuning", default=True),
    ("_cuda_record_untuned_is_enabled", "_cuda_record_untuned_enable"): _setting("record untuned", default=False),
    ("_cuda_tunableop_get_max_tuning_duration", "_cuda_tunableop_set_max_tuning_duration"): _setting("tuning ms", 30),
    ("_cuda_tunableop_get_max_tuning_iterations", "_cuda_tunableop_set_max_tuning_iterations"): _setting(
        "tunings", 100
    ),
    ("_cuda_tunableop_get_rotating_buffer_size", "_cuda_tunableop_set_rotating_buffer_size"): _setting("rotating", 0),
    (
        "_cuda_tunableop_get_cublaslt_requested_algo_count",
        "_cuda_tunableop_set_cublaslt_requested_algo_count",
    ): _setting("algorithms", 1),
}


def _set_filename(session: Rehearsal, filename: str, insert_device_ordinal: bool = False) -> None:
    state_of(session).settings["tunable file"] = filename


_TUNING: dict[str, Virtual] = {
    "_cuda_tunableop_get_filename": lambda session: state_of(session).settings.get("tunable file", ""),
    "_cuda_tunableop_set_filename": _set_filename,
    "_cuda_tunableop_get_results": answer(()),
    "_cuda_tunableop_get_validators": answer(()),
    "_cuda_tunableop_read_file": answer(False),
    "_cuda_tunableop_write_file": answer(True),
    "_cuda_tunableop_write_file_on_exit": nothing,
    "_cuda_tunableop_set_numerical_check_tolerances": nothing,
}


def _preferred(what: str) -> tuple[Any, Any]:
    """A preferred library: C++ refuses one that was not built in, so a rehearsal remembers it itself."""
    getter, setter = getattr(torch._C, f"_get_{what}"), getattr(torch._C, f"_set_{what}")

    def get(session: Rehearsal) -> Any:
        return state_of(session).settings.get(what, getter())

    def set_(session: Rehearsal, value: Any) -> None:
        state_of(session).settings[what] = value

    return on_type("cuda", getter, get), on_type("cuda", setter, set_)


# -- the CUDA runtime and NVTX, which Python sees as modules


class _Error(int):
    """A code of the runtime."""

    success = 0


class CudaRuntime:
    """What torch.cuda.cudart() gives."""

    cudaError = _Error  # noqa: N815 - the runtime's own name

    _DO_NOTHING = frozenset(
        ("cudaProfilerStart", "cudaProfilerStop", "cudaProfilerInitialize", "cudaHostRegister", "cudaHostUnregister")
    )

    @staticmethod
    def cudaMemGetInfo(device: Any) -> tuple[int, int]:  # noqa: N802
        session = thread.mode.session  # type: ignore[union-attr]
        index = device if isinstance(device, int) else torch.device(device).index
        return free_and_total(session, session.current_index if index is None else index)

    @staticmethod
    def cudaGetErrorString(error: int) -> str:  # noqa: N802
        return {0: "no error", 2: "out of memory", 101: "invalid device ordinal"}.get(
            int(error), "unrecognized error code"
        )

    def __getattr__(self, name: str) -> Any:
        if name in self._DO_NOTHING:
            return lambda *_: _Error.success
        from wherry.rehearse.impersonate.refusals import cannot

        raise cannot(f"torch.cuda.cudart().{name}", "it goes to the CUDA runtime, which is not here")


class Ranges:
    """`torch._C._nvtx`: ranges have a depth, and nobody looks."""

    def __init__(self) -> None:
        self._depth = 0
        self._numbers = itertools.count(1)

    def rangePushA(self, _: str) -> int:  # noqa: N802
        self._depth += 1
        return self._depth - 1

    def rangePop(self) -> int:  # noqa: N802
        self._depth -= 1
        return self._depth

    def rangeStartA(self, _: str) -> int:  # noqa: N802
        return next(self._numbers)

    def __getattr__(self, name: str) -> Any:
        if name in ("markA", "rangeEnd", "deviceRangeStart", "deviceRangeEnd"):
            return lambda *_: None
        raise AttributeError(name)


class _Switch:
    """An object that is a rehearsed one for threads in a rehearsal of CUDA, and the original for others."""

    def __init__(self, original: Any, virtual: Any) -> None:
        self.__dict__.update(_original=original, _virtual=virtual)

    def __getattr__(self, name: str) -> Any:
        mode = thread.mode
        rehearsed = mode is not None and mode.session.backend.device_type == "cuda"
        return getattr(self._virtual if rehearsed else self._original, name)


def _start_runtime(session: Rehearsal) -> CudaRuntime:
    from wherry.rehearse.impersonate.devices import start

    start(session)
    return CudaRuntime()


# -- cuFFT's plans: none are made


class _PlanCache:
    size = 0

    def __init__(self) -> None:
        self.max_size = 4096

    def clear(self) -> None:
        pass


class PlanCacheManager:
    """Stands in for `torch.backends.cuda.cufft_plan_cache`."""

    def __init__(self, original: Any) -> None:
        self.__dict__["_original"] = original

    def _cache(self, device: Any = None) -> Any:
        mode = thread.mode
        if mode is None or mode.session.backend.device_type != "cuda":
            return self._original if device is None else self._original[device]
        from wherry.rehearse.impersonate.devices import index_of

        session = mode.session
        index = index_of(session, device)
        if not 0 <= index < session.count:
            raise RuntimeError(
                f"cufft_plan_cache: expected 0 <= device index < {session.count}, but got device with index {index}"
            )
        return state_of(session).settings.setdefault("cufft", {}).setdefault(index, _PlanCache())

    def __getitem__(self, device: Any) -> Any:
        return self._cache(device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "size":
            raise RuntimeError(
                ".size is a read-only property showing the number of plans currently in the cache. To change the cache "
                "capacity, set cufft_plan_cache.max_size."
            )
        setattr(self._cache(), name, value)


def _nccl_available(session: Rehearsal, tensors: Any) -> bool:
    """torch.cuda.nccl.is_available: contiguous dense tensors on different devices (torch/cuda/nccl.py)."""
    devices = set()
    for tensor in tensors:
        if tensor.is_sparse or not tensor.is_contiguous() or not tensor.is_cuda or tensor.get_device() in devices:
            return False
        devices.add(tensor.get_device())
    return True


def patches() -> Iterator[Patch]:
    """Names of torch.backends and torch._C that speak of libraries."""
    table = {
        name: virtual for pair, virtuals in _SETTINGS.items() for name, virtual in zip(pair, virtuals, strict=True)
    }
    yield from bottom(torch._C, "cuda", {**table, **_TUNING})
    for what in ("linalg_preferred_backend", "blas_preferred_backend", "rocm_fa_preferred_backend"):
        if hasattr(torch._C, f"_get_{what}"):
            get, set_ = _preferred(what)
            yield Patch(torch._C, f"_get_{what}", get)
            yield Patch(torch._C, f"_set_{what}", set_)
    for name, virtual in (("_is_flash_attention_available", answer(True)), ("_is_ck_sdpa_available", answer(False))):
        if hasattr(torch._C, name):
            yield Patch(torch._C, name, on_type("cuda", getattr(torch._C, name), virtual))

    # A PropModule hides the module itself in `m`.
    cudnn: Any = torch.backends.cudnn
    for name, virtual, absent in (("version", _version("cudnn"), None), ("is_available", _has("cudnn"), False)):
        yield Patch(cudnn.m, name, on_type("cuda", vars(cudnn.m)[name], virtual, answer(absent)))
    yield Patch(cudnn.m, "_init", on_type("cuda", vars(cudnn.m)["_init"], answer(True), answer(False)))
    if hasattr(torch, "_use_cudnn_rnn_flatten_weight"):
        yield Patch(
            torch, "_use_cudnn_rnn_flatten_weight", on_type("cuda", torch._use_cudnn_rnn_flatten_weight, answer(False))
        )
    sparse: Any = getattr(torch.backends, "cusparselt", None)
    if sparse is not None:
        for name, virtual in (("version", _version("cusparselt")), ("is_available", _has("cusparselt"))):
            yield Patch(sparse, name, on_type("cuda", vars(sparse)[name], virtual))

    runtime = on_type("cuda", torch.cuda.cudart, _start_runtime)
    yield from everywhere(torch.cuda, "cudart", torch.cuda.cudart, runtime, copies_in("torch.cuda"))
    yield Patch(torch.cuda, "_cudart", _Switch(torch.cuda._cudart, CudaRuntime()))
    nvtx: Any = torch.cuda.nvtx
    yield Patch(nvtx, "_nvtx", _Switch(nvtx._nvtx, Ranges()))
    nccl: Any = torch.cuda.nccl
    for name, virtual in (("version", _version("nccl")), ("is_available", _nccl_available)):
        yield Patch(nccl, name, on_type("cuda", vars(nccl)[name], virtual))
    manager = torch.backends.cuda.cufft_plan_cache
    yield Patch(torch.backends.cuda, "cufft_plan_cache", PlanCacheManager(manager))
