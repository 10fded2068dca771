"""Captured graphs: torch.cuda.CUDAGraph, torch.xpu.XPUGraph, torch.accelerator.Graph.

A capture records the ops that run on the device; a replay runs them again and writes each result where the first one
was, so a program that fills its static inputs and replays finds the results in its static outputs, as on the device. What
a capture does not see is not replayed: work on the host, and Python. What would make the host wait is refused, in the
driver's words, and spoils the capture.

Two things differ. An op that is captured also computes (a real one waits for the first replay), and a replay is as
slow as its ops are.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherry.dispatch import DispatchMode, OpOverload, drop_finished
from wherry.rehearse.absence import accelerator_error
from wherry.rehearse.records import HOST, PINNED, residence
from wherry.rehearse.state import state_of
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal
    from wherry.storage import Place


class _Call:
    """One op of a graph, and where its results go."""

    __slots__ = ("args", "func", "kwargs", "results", "target")

    def __init__(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        results: list[Tensor],
        target: Place | None,
    ) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.results = results
        self.target = target

    def run(self) -> None:
        mode = thread.mode
        if mode is not None:
            mode.target = self.target
        try:
            fresh = _tensors(self.func(*self.args, **self.kwargs))
        finally:
            if mode is not None:
                mode.target = None
        for old, new in zip(self.results, fresh, strict=False):
            if old is not new and _key(old) != _key(new):
                old.copy_(new)


class _Recorder(DispatchMode):
    """The mode above the rehearsal's own while a capture is on."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self.spoilt = False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        mode = thread.mode
        target = None if mode is None else mode.target
        operands = _tensors((*args, *kwargs.values()))
        if _makes_the_host_wait(func, operands, args, kwargs, target):
            self.spoilt = True
            raise not_permitted()
        out = func(*args, **kwargs)
        results = _tensors(out)
        if any(residence(t).index is not None for t in (*operands, *results)):
            before = {_key(t) for t in operands}
            self.calls.append(_Call(func, args, kwargs, [t for t in results if _key(t) not in before], target))
        return out


def _makes_the_host_wait(
    func: OpOverload, operands: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], target: Place | None
) -> bool:
    name = func._schema.name
    on_device = any(residence(t).index is not None for t in operands)
    if name in (
        "aten::_local_scalar_dense",
        "aten::nonzero",
        "aten::masked_select",
        "aten::_unique2",
        "aten::is_nonzero",
    ):
        return on_device
    if name == "aten::_to_copy" and operands and target is not None:
        pair = (residence(operands[0]), target)
        blocking = not kwargs.get("non_blocking")
    elif name == "aten::copy_" and len(operands) == 2:
        pair = (residence(operands[1]), residence(operands[0]))
        blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
    else:
        return False
    host = (HOST, PINNED)
    return blocking and (pair[0] in host) != (pair[1] in host)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _key(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except NotImplementedError:
        return id(tensor)


class _Capture(threading.local):
    recorder: _Recorder | None = None


_capture = _Capture()


def capturing() -> bool:
    """Whether the calling thread captures."""
    return _capture.recorder is not None


def not_permitted() -> Exception:
    """What the driver says to work that waits, while a capture is on."""
    if _capture.recorder is not None:
        _capture.recorder.spoilt = True
    return accelerator_error(
        "CUDA error: operation not permitted when stream is capturing\nSearch for `cudaErrorStreamCaptureUnsupported' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.",
        code=900,
    )


def is_capturing(session: Rehearsal, *_: Any) -> bool:
    return capturing()


def pool_handle(session: Rehearsal, *_: Any) -> tuple[int, int]:
    return (0, next(state_of(session).numbers))


REFUSED_METHODS = frozenset(
    (
        *(
            "debug_dump",
            "get_graph_data",
            "raw_cuda_graph",
            "raw_cuda_graph_exec",
            "raw_xpu_graph",
            "raw_xpu_graph_exec",
        ),
        *("begin_capture_to_if_node", "begin_capture_to_while_node", "end_capture_to_conditional_node", "pools"),
        *("set_conditional_handle_for_current_node", "get_currently_capturing_graph", "retain_object"),
        *("register_capture_start_hook", "register_capture_end_hook", "register_destroy_callback"),
        *("register_post_instantiate_hook", "register_replay_start_hook", "register_replay_end_hook"),
        *("capture_end_pre", "capture_end_post"),
    )
)


class Graph:
    """torch.cuda.CUDAGraph and torch.xpu.XPUGraph."""

    _NAME = "CUDAGraph"

    def __init__(self, keep_graph: bool = False) -> None:
        self._calls: list[_Call] | None = None
        self._recorder: _Recorder | None = None
        self._pool: tuple[int, int] | None = None
        self._keep = keep_graph

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        session = thread.mode.session  # type: ignore[union-attr]
        if self._calls is not None:
            raise RuntimeError(
                f"This {self._NAME} instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        stream = state_of(session).streams.current.get(session.current_index)
        if stream is None or stream.stream_id == 0:
            raise RuntimeError(
                f"{self._NAME[:-5]} graphs must be captured on a non-default stream. (However, after capture, it's ok to "
                "replay them on the default stream.)"
            )
        if capturing():
            raise not_permitted()
        self._pool = tuple(pool) if pool else pool_handle(session)
        self._recorder = _capture.recorder = _Recorder()
        self._recorder.__enter__()

    def capture_end(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            raise RuntimeError(f"Called {self._NAME}::capture_end without a preceding capture_begin.")
        _capture.recorder = None
        recorder.finished = True
        drop_finished()
        if recorder.spoilt:
            raise accelerator_error("CUDA error: operation failed due to a previous error during capture", code=901)
        self._calls = recorder.calls

    def __del__(self) -> None:
        if self._recorder is not None:  # dropped in the middle of a capture
            self._recorder.finished = True
            _capture.recorder = None

    def instantiate(self) -> None:
        self._captured("instantiate")

    def replay(self) -> None:
        with torch.no_grad():
            for call in self._captured("replay"):
                call.run()

    def reset(self) -> None:
        self._calls = None

    def pool(self) -> Any:
        self._captured("pool()")
        return self._pool

    def _captured(self, method: str) -> list[_Call]:
        if self._calls is None:
            raise RuntimeError(f"Called {self._NAME}::{method} without a preceding successful capture.")
        return self._calls

    def enable_debug_mode(self) -> None:
        pass

    def register_generator_state(self, generator: Any) -> None:
        """A replay draws anew from every generator that the ops drew from."""

    def __getattr__(self, name: str) -> Any:
        if name not in REFUSED_METHODS:
            raise AttributeError(f"'{self._NAME}' object has no attribute '{name}'")
        from wherry.rehearse.impersonate.refusals import cannot

        raise cannot(f"{self._NAME}.{name}", "it reaches into what the driver made of a graph, and no driver is here")


class XpuGraph(Graph):
    """torch.xpu.XPUGraph."""

    _NAME = "XPUGraph"


class AcceleratorGraph(Graph):
    """torch.accelerator.Graph: a context manager that captures on the current stream."""

    def __init__(
        self, keep_graph: bool = False, *, pool: tuple[int, int] | None = None, capture_error_mode: str = "default"
    ) -> None:
        super().__init__(keep_graph)
        self.graph_pool = pool
        self.capture_error_mode = capture_error_mode

    def capture_begin(self, *_: Any, **__: Any) -> None:
        super().capture_begin(self.graph_pool, self.capture_error_mode)

    def __enter__(self) -> None:
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()
        self.capture_begin()

    def __exit__(self, *_: object) -> None:
        self.capture_end()
