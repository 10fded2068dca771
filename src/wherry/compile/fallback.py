"""The net below a compiled model: what the compiler cannot do runs eagerly, once and for all.

torch.compile works on the first call, and on later ones whose inputs are of another kind. It fails in one of two places.

- *The backend* fails on a graph that was traced: Inductor without a C++ compiler, an operator it cannot lower. `Net.compile`
  stands around it and answers with the graph itself, run operator by operator. So what ran before, up to a graph break, is
  not run again.
- *The tracing* fails, before any of the frame has run. Then `Net.run` calls the model eagerly, unless a part of it has run
  already, for that part must not run twice.

A tracing that fails because the program is wrong (shapes that do not fit) is no failure of the compiler: the eager call
raises what eager calls raise, and the model stays compiled.
"""

from __future__ import annotations

import copy
import functools
import os
import re
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from wherry import callsite
from wherry.backends._backend import first_line
from wherry.compile.decide import NotCompiled, name_of, why_not_on
from wherry.dispatch import backward_beside_forward, dynamo_errors, graph_compiler, is_watched, optimized_module

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from wherry.compile import Later

_TRACING = f"{os.sep}torch{os.sep}_dynamo{os.sep}convert_frame.py"
_LINE = re.compile(r'File "([^"]+)", line (\d+), in ')


class Net:
    """What is known of one compiled model: whether it still runs compiled, and if not, why."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.eager = False  # every call from now on
        self.reason: str | None = None  # found while compiling, not yet said
        self.rehearsed = False  # a call inside a rehearsal has been told of

    def run(self, compiled: Callable[..., Any], eager: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a model: compiled, and eagerly where that fails before any of it has run."""
        if is_watched():
            return self._run_watched(eager, args, kwargs)
        try:
            result = compiled(*args, **kwargs)
        except Exception as err:
            errors = dynamo_errors()
            begun, tracing = _stage(err.__traceback__)
            if isinstance(err, errors.asked_for) or not (tracing or isinstance(err, errors.any)):
                raise
            if begun:
                self._explain_halfway(err)
                raise
            failure = f"{_says(err)}{_place(str(err))}"
        else:
            if self.reason is not None:
                self._settle(self.reason)
            return result
        # Outside of the handler, so that an error of the model has no history that it would not have without us. When it
        # raises, the model was at fault and not the compiler.
        result = eager(*args, **kwargs)
        self._settle(failure)
        return result

    def refuse(self, reason: str) -> None:
        """No graph is compiled from now on. Said when the call has returned, where a warning may raise and spoil nothing."""
        self.reason = reason

    def _settle(self, reason: str) -> None:
        self.reason, self.eager = None, True
        callsite.warn(f"{self.name} runs eagerly from here on: {reason}", NotCompiled)

    def _run_watched(self, eager: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if not self.rehearsed:
            self.rehearsed = True
            callsite.warn(
                f"{self.name} runs eagerly in a rehearsal: there is no real device to compile for", NotCompiled
            )
        return eager(*args, **kwargs)

    def _explain_halfway(self, err: Exception) -> None:
        errors = dynamo_errors()
        if isinstance(err, errors.any) and not isinstance(err, errors.of_the_program):
            self.eager = True
            if sys.version_info >= (3, 11):
                err.add_note(
                    f"wherry: a part of {self.name} had run when the compiler failed, so it was not run again eagerly. "
                    "The next call runs eagerly."
                )


class GraphCompiler:
    """The backend that torch.compile is handed: the caller's, above a net."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.inner: Callable[..., Any] | None = None  # set once torch.compile has taken the options that are its own
        self.passes_options = True  # Inductor's were given to it when it was made
        self.__name__ = "wherry"  # in torch's own messages

    # torch shares what it compiled among models of one code, by asking whether their backends are equal.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphCompiler) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash(GraphCompiler)

    def __call__(self, graph: fx.GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]:
        assert self.inner is not None
        if self.net.eager or self.net.reason is not None:
            return graph.forward
        refusal = why_not_on(_devices(graph, inputs))
        if refusal is not None:
            self.net.refuse(refusal)
            return graph.forward
        # Passes of a backend rewrite the graph they are given, so one that fails may leave it half done.
        untouched = copy.deepcopy(graph.graph)
        try:
            with backward_beside_forward():
                return self.inner(graph, inputs, **(options if self.passes_options else {}))
        except dynamo_errors().control_flow:
            raise
        except Exception as err:  # noqa: BLE001 - compilers raise anything; the reason is kept and said
            self.net.refuse(f"{_says(err)}{_first_line_of(untouched)}")
            return fx.GraphModule(graph, untouched).forward

    def reset(self) -> None:
        """Called by torch._dynamo.reset(), for a backend that keeps something."""
        reset = getattr(self.inner, "reset", None)
        if reset is not None:
            reset()


def compile_with_net(
    model: Callable[..., Any],
    *,
    fullgraph: bool,
    dynamic: bool | None,
    backend: str | Callable[..., Any] | None,
    mode: str | None,
    options: dict[str, Any] | None,
    **later: Unpack[Later],
) -> Callable[..., Any]:
    """torch.compile, and the net below what it makes."""
    net = Net(name_of(model))
    graphs = GraphCompiler(net)
    # torch.compile takes options of its own out of the dict it is given, which ones differs between versions.
    left = None if options is None else dict(options)
    torch_compile: Any = torch.compile  # typed by its newest parameters, which an older one does not have
    ahead = bool(options and options.get("use_aoti"))
    try:
        compiled = torch_compile(
            model, fullgraph=fullgraph, dynamic=dynamic, backend=graphs, mode=mode, options=left, **later
        )
    except RuntimeError as err:
        if mode is not None and options is not None:
            raise  # "Either mode or options can be specified"
        callsite.warn(f"{net.name} runs eagerly: {first_line(err)}", NotCompiled)
        return model
    graphs.inner, graphs.passes_options = graph_compiler(
        backend, mode=mode, options=left, dynamic=dynamic, name=later.get("name"), ahead=ahead
    )
    if compiled is model or isinstance(model, type):
        return compiled  # TORCH_COMPILE_DISABLE=1, a rehearsal; or a class, whose instances are called elsewhere
    if isinstance(compiled, optimized_module()):
        return _under_net(compiled, net)
    return _function(compiled, model, net)


def _function(compiled: Callable[..., Any], eager: Callable[..., Any], net: Net) -> Callable[..., Any]:
    @functools.wraps(eager)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Traced by somebody else's torch.compile, which then sees the function itself.
        if net.eager or torch.compiler.is_compiling():
            return eager(*args, **kwargs)
        return net.run(compiled, eager, args, kwargs)

    return call


@functools.cache
def _module_class() -> type[Any]:
    base: Any = optimized_module()

    class OptimizedModule(base):
        """What torch.compile makes of a module, above a net."""

        _net: Net | None = None  # on the class as well, or torch would set it on the original module

        def __init__(self, module: torch.nn.Module, context: Any, net: Net) -> None:
            object.__setattr__(self, "_net", net)
            super().__init__(module, context)

        def _initialize(self) -> None:
            super()._initialize()
            if self._net is not None:
                self.forward = _function(self.forward, self._orig_mod.__call__, self._net)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                # Whoever traces us knows torch's class, but not ours; `self._orig_mod` it would refuse to follow.
                return self._modules["_orig_mod"](*args, **kwargs)
            return super().__call__(*args, **kwargs)

        def __reduce__(self) -> Any:
            return _rebuild, (self._orig_mod, self.dynamo_ctx, self._net)

    return OptimizedModule


def _under_net(compiled: Any, net: Net) -> torch.nn.Module:
    # Its class is changed, rather than one made anew, to keep whatever this version of torch has put on it.
    compiled.__class__ = _module_class()
    compiled._net = net  # noqa: SLF001 - of the class above
    compiled.forward = _function(compiled.forward, compiled._orig_mod.__call__, net)  # noqa: SLF001 - torch's documented name
    return compiled


def _rebuild(module: torch.nn.Module, context: Any, net: Net) -> torch.nn.Module:
    """A copy."""
    return _module_class()(module, context, net)


def _devices(graph: fx.GraphModule, inputs: list[Any]) -> set[torch.device]:
    """Where the tensors of a graph are: those that go in, and those that are made in it."""
    traced = (node.meta.get("example_value") for node in graph.graph.nodes)
    return {
        value.device for value in (*inputs, *traced) if isinstance(value, torch.Tensor) and value.device.type != "meta"
    }


def _says(err: Exception) -> str:
    """What a compiler says, without the layers it is wrapped in."""
    inner = getattr(err, "inner_exception", None)
    while isinstance(inner, Exception):
        err, inner = inner, getattr(inner, "inner_exception", None)
    return f"the compiler failed with {type(err).__name__}: {first_line(err)}"


def _first_line_of(graph: fx.Graph) -> str:
    """Where the first operator of a graph is called, as the end of a sentence."""
    traces = (node.meta.get("stack_trace") for node in graph.nodes if node.op.startswith("call_"))
    return next((place for trace in traces if trace and (place := _place(trace))), "")


def _place(text: str) -> str:
    """The innermost line of the program that a text of torch.compile names, as the end of a sentence."""
    lines = [(file, line) for file, line in _LINE.findall(text) if not callsite.is_library(file)]
    return f", compiling {lines[-1][0]}:{lines[-1][1]}" if lines else ""


def _stage(traceback: TracebackType | None) -> tuple[bool, bool]:
    """Whether a part of the program had run when something was raised, and whether it was raised while tracing.

    A frame that is being traced was not entered yet, so the program's frames that come before the tracer's have begun.
    """
    begun = False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file.endswith(_TRACING):
            return begun, True
        begun = begun or not callsite.is_library(file)
        traceback = traceback.tb_next
    return begun, False
