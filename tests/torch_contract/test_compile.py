"""What torch.compile promises nobody, and the fallback of `wherry.compile` leans on."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo import OptimizedModule, exc
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.eval_frame import check_if_dynamo_supported

from wherry.dispatch import dynamo_errors, graph_compiler

X = torch.ones(2, 3)


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Keeping:
    """A backend that keeps the graphs it is handed."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []

    def __call__(self, graph: fx.GraphModule, inputs: list[Tensor], **options: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward


def test_dynamo_says_whether_it_can_work_here() -> None:
    assert check_if_dynamo_supported() is None


def test_backends_are_found_by_name() -> None:
    assert callable(lookup_backend("aot_eager"))
    assert lookup_backend(print) is print
    with pytest.raises(exc.InvalidBackend):
        lookup_backend("no such")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # importing Inductor warns
def test_wrapper_of_inductor_takes_mode_options_and_dynamic_and_compares() -> None:
    positional = list(inspect.signature(torch._TorchCompileInductorWrapper).parameters)

    assert positional[:3] == ["mode", "options", "dynamic"]
    assert positional[3:] in ([], ["name"])
    one, other = (
        graph_compiler("inductor", mode=None, options=None, dynamic=None, name=None, ahead=False) for _ in range(2)
    )
    assert one == other


def test_errors_have_one_family() -> None:
    errors = dynamo_errors()

    for kind in (*errors.asked_for, *errors.control_flow, errors.of_the_program, exc.InternalTorchDynamoError):
        assert issubclass(kind, errors.any)
    assert issubclass(errors.any, RuntimeError)


def test_graph_tells_the_tensors_and_the_lines_it_was_traced_from() -> None:
    backend = Keeping()

    torch.compile(lambda x: x.sin() + torch.zeros(3), backend=backend)(X)

    calls = [node for node in backend.graphs[0].graph.nodes if node.op.startswith("call_")]
    assert {node.meta["example_value"].device for node in calls} == {torch.device("cpu")}
    assert all(f'File "{__file__}", line ' in node.meta["stack_trace"] for node in calls)


def test_copied_graph_runs_as_it_was() -> None:
    backend = Keeping()
    torch.compile(lambda x: torch.add(x, 1), backend=backend)(X)
    graph = backend.graphs[0]

    untouched = copy.deepcopy(graph.graph)
    for node in graph.graph.nodes:
        if node.op == "call_function":
            node.target = torch.sub

    assert torch.equal(fx.GraphModule(graph, untouched)(X)[0], X + 1)


def test_models_of_one_code_share_graphs_when_their_backends_are_equal() -> None:
    class Equal(Keeping):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        def __hash__(self) -> int:
            return 0

    first, second = Equal(), Equal()

    for backend in (first, second):
        torch.compile(nn.Sequential(nn.Linear(3, 3)), backend=backend)(X)

    assert (len(first.graphs), len(second.graphs)) == (1, 0)


def test_compiled_module_is_of_a_class_that_can_be_changed_and_rebuilt() -> None:
    model = nn.Linear(3, 3)
    compiled: Any = torch.compile(model, backend="eager")

    class Own(OptimizedModule):
        mark = None

    compiled.__class__ = Own
    compiled.mark = "set"

    assert "mark" not in vars(model)
    assert compiled._orig_mod is model
    assert compiled.__reduce__()[1] == (model, compiled.dynamo_ctx)
    assert torch.equal(compiled(X), model(X))


def test_tracing_raises_before_the_frame_is_entered() -> None:
    """So the frames of the traceback that come before the tracer's are those of a program that has begun."""

    def program(x: Tensor) -> Tensor:
        return x @ x

    with pytest.raises(exc.TorchRuntimeError) as caught:
        torch.compile(program, backend="eager")(X)

    files = [entry.frame.code.raw.co_filename for entry in caught.traceback]
    names = [entry.frame.code.raw.co_name for entry in caught.traceback]
    assert any(file.endswith("_dynamo/convert_frame.py") for file in files)
    assert "program" not in names
