"""What has no meaning on a device that is not there: refused by name, with the reason.

Everything here would hand out or take a handle into a real driver, run code compiled for the chip, or measure it. A
rehearsal could only make something up. `REFUSED` is the list, as data; the docs page is written from it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from wherry.errors import CannotRehearse
from wherry.rehearse.impersonate.patches import MISSING, Patch, replace, restore
from wherry.rehearse.impersonate.stand_ins import copies_in, everywhere
from wherry.rehearse.surface import thread

_COMPILED = "it runs code compiled for the chip, which is not here"
_MEASURED = "it is measured on the chip, which is not here"
_HANDLE = "it hands out a handle into the driver, which is not here"
_ALLOCATOR = "memory of a virtual device is the host's, so there is no allocator to exchange"

REFUSED: dict[str, str] = {
    "torch.cuda.jiterator._create_jit_fn": _COMPILED,
    "torch.cuda.jiterator._create_multi_output_jit_fn": _COMPILED,
    "torch.cuda._compile_kernel": _COMPILED,
    "torch.cuda._get_cuda_library": _COMPILED,
    "torch.cuda.current_blas_handle": _HANDLE,
    "torch.cuda.current_solver_handle": _HANDLE,
    "torch.cuda.caching_allocator_alloc": _HANDLE,
    "torch.cuda.caching_allocator_delete": _HANDLE,
    "torch.cuda.memory.CUDAPluggableAllocator": _ALLOCATOR,
    "torch.cuda.change_current_allocator": _ALLOCATOR,
    "torch.cuda.memory_usage": _MEASURED,
    "torch.cuda.utilization": _MEASURED,
    "torch.cuda.temperature": _MEASURED,
    "torch.cuda.power_draw": _MEASURED,
    "torch.cuda.clock_rate": _MEASURED,
    "torch.cuda.green_contexts.GreenContext": "it divides the multiprocessors of a chip that is not here",
    "torch.cuda.gds.GdsFile": "it reads from disk into the memory of the chip, which is not here",
    "torch.cuda.gds.gds_register_buffer": _HANDLE,
    "torch.cuda.gds.gds_deregister_buffer": _HANDLE,
    **{
        f"torch.cuda.nccl.{name}": "NCCL is called without torch.distributed; torch.distributed can be rehearsed"
        for name in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "init_rank", "unique_id")
    },
    **{
        f"torch.cuda.graphs.{name}": "it reaches into what the driver made of a graph, and no driver is here"
        for name in (
            "export_dot",
            "export_graph_data",
            "register_graph_capture_start_hook",
            "register_graph_capture_end_hook",
            "register_graph_destroy_hook",
            "register_graph_instantiate_hook",
            "register_graph_replay_start_hook",
            "register_graph_replay_end_hook",
        )
    },
    "torch.cuda.profiler.init": "it configures a profiler that CUDA no longer has",
    "torch.cuda.tunable.tune_gemm_in_file": _MEASURED,
    "torch.cuda.tunable.mgpu_tune_gemm_in_file": _MEASURED,
    "torch.backends.cuda.can_use_flash_attention": "which kernel fits is for CUDA's own code to say",
    "torch.backends.cuda.can_use_efficient_attention": "which kernel fits is for CUDA's own code to say",
    "torch.backends.cuda.can_use_cudnn_attention": "which kernel fits is for CUDA's own code to say",
    "torch.mps.compile_shader": _COMPILED,
    "torch.mps.load_metallib": _COMPILED,
    "torch.mps._compile_shader": _COMPILED,
    "torch.mps._host_alias_storage": _HANDLE,
    "torch.mps.profiler.metal_capture": "a Metal capture records what the chip does, which is not here",
    "torch.xpu.memory.XPUPluggableAllocator": _ALLOCATOR,
    "torch.xpu.memory.change_current_allocator": _ALLOCATOR,
    "torch.xpu.memory_usage": _MEASURED,
    "torch.xpu.utilization": _MEASURED,
    "torch.xpu.temperature": _MEASURED,
    "torch.xpu.power_draw": _MEASURED,
    "torch.xpu.clock_rate": _MEASURED,
    **{
        f"torch.cuda.{dtype}Storage": "a storage is made by its tensor here: torch.empty(n, device=...).untyped_storage()"
        for dtype in (
            *("BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat", "Double", "Float", "Half", "Int"),
            *("Long", "Short"),
        )
    },
    "torch.UntypedStorage._share_cuda_": "memory of a virtual device is known to its own process only",
    "torch.UntypedStorage._new_shared_cuda": "memory of a virtual device is known to its own process only",
}
"""Name -> why it cannot be rehearsed, as a clause. Where this torch does not have a name, nothing is refused."""


def cannot(name: str, reason: str) -> CannotRehearse:
    """The error for a name that cannot be rehearsed."""
    return CannotRehearse(name, reason)


def _device_type_of(name: str) -> str | None:
    """Whose name it is: "torch.xpu.clock_rate" is refused in a rehearsal of xpu and untouched in others."""
    for device_type in ("xpu", "mps"):
        if name.startswith((f"torch.{device_type}.", f"torch.backends.{device_type}.")):
            return device_type
    return "cuda"


def _refusing(name: str, reason: str, original: Any) -> Any:
    device_type = _device_type_of(name)

    def refuse_in_rehearsals(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is not None and mode.session.backend.device_type == device_type:
            raise cannot(name, reason)
        return original(*args, **kwargs)

    if not isinstance(original, type):
        return functools.wraps(original)(refuse_in_rehearsals)

    class Type(type(original)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return refuse_in_rehearsals(*args, **kwargs)

        def __getattribute__(cls, attribute: str) -> Any:  # GreenContext.create is a static method
            mode = thread.mode
            refused = mode is not None and mode.session.backend.device_type == device_type
            if refused and not attribute.startswith("__") and attribute in vars(original):
                raise cannot(f"{name}.{attribute}", reason)
            return super().__getattribute__(attribute)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    return Type(original.__name__, (original,), {"__module__": original.__module__, "__doc__": original.__doc__})


def patches() -> Iterator[Patch]:
    """Every refused name that this torch has, in all the places it is known by."""
    for dotted, reason in REFUSED.items():
        path, _, name = dotted.rpartition(".")
        owner = _owner(path)
        original = MISSING if owner is None else getattr(owner, name, MISSING)
        if original is MISSING:
            continue
        if isinstance(owner, ModuleType):
            package = ".".join(path.split(".")[:2])
            yield from everywhere(owner, name, original, _refusing(dotted, reason, original), copies_in(package))
        else:
            yield Patch(owner, name, _refusing_method(dotted, reason, original))


def _owner(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ImportError:
        module, _, cls = path.rpartition(".")
        return getattr(importlib.import_module(module), cls, None) if module else None


def _refusing_method(name: str, reason: str, original: Callable[..., Any]) -> Any:
    def refuse_in_rehearsals(*args: Any, **kwargs: Any) -> Any:
        if thread.mode is not None and thread.mode.session.places:
            raise cannot(name, reason)
        return original(*args, **kwargs)

    return refuse_in_rehearsals


# -- kernels that programs write in Triton, which may be imported before a rehearsal or inside it


def _running(original: Any) -> Any:
    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is not None and mode.session.places:
            kernel = getattr(self, "fn", self)
            name = f"{getattr(kernel, '__module__', '?')}.{getattr(kernel, '__name__', kernel)}"
            raise cannot(name, "it is a Triton kernel, compiled for the chip, which is not here")
        return original(self, *args, **kwargs)

    return run


_TRITON = "triton.runtime.jit"
_undo: list[Patch] = []


def _refuse_kernels(module: Any) -> None:
    """`kernel[grid](...)` ends in `JITFunction.run`."""
    _undo.append(replace(Patch(module.JITFunction, "run", _running(module.JITFunction.run))))


class _Finder(importlib.abc.MetaPathFinder):
    """Sees Triton come."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _TRITON:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                execute(module)
                if _FINDER in sys.meta_path:
                    _refuse_kernels(module)

            loader.exec_module = exec_module
        return spec


_FINDER = _Finder()


def watch() -> None:
    """Refuse Triton kernels from now on."""
    if _TRITON in sys.modules:
        _refuse_kernels(sys.modules[_TRITON])
    sys.meta_path.insert(0, _FINDER)


def unwatch() -> None:
    """Refuse them no longer."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    restore(_undo)
    _undo.clear()
