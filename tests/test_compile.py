"""Compiled where that is mature, eager where it is not or where the compiler fails, and the reason said once, on the line."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import InternalTorchDynamoError, InvalidBackend, Unsupported

import wherry
from wherry.backends import Maturity, find

MANY = "ignore::DeprecationWarning"  # importing Inductor warns, in ways that differ between versions


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    """What torch keeps of a code object must not reach the next test."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


class Recording:
    """A backend that counts the graphs it is handed, runs them as they are, and fails on some."""

    def __init__(self, *fails_on: int) -> None:
        self.graphs = 0
        self.options: list[dict[str, Any]] = []
        self.fails_on = fails_on

    def __call__(self, graph: fx.GraphModule, inputs: list[Tensor], **options: Any) -> Callable[..., Any]:
        self.graphs += 1
        self.options.append(options)
        if self.graphs in self.fails_on:
            raise NotImplementedError("there is no kernel for it.\nSee the manual.")
        return graph.forward


def fails(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    raise NotImplementedError("there is no kernel for it.\nSee the manual.")


X = torch.arange(8.0).reshape(2, 4)


# Where it is mature


@pytest.mark.slow
@pytest.mark.filterwarnings(MANY)
def test_inductor_compiles_and_trains_a_module() -> None:
    model = Net()

    compiled = wherry.compile(model)
    compiled(X).sum().backward()

    expected = copy.deepcopy(model)
    expected.zero_grad()
    expected(X).sum().backward()
    torch.testing.assert_close(compiled(X), expected(X))
    torch.testing.assert_close(model.linear.weight.grad, expected.linear.weight.grad)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_module_is_what_torch_makes_of_one() -> None:
    model = Net()

    compiled: Any = wherry.compile(model, backend=Recording())

    assert isinstance(compiled, torch._dynamo.OptimizedModule)
    assert compiled._orig_mod is model
    assert compiled.linear is model.linear
    assert set(compiled.state_dict()) == {f"_orig_mod.{name}" for name in model.state_dict()}


def test_train_and_eval_reach_the_model() -> None:
    model = Net()
    compiled = wherry.compile(model, backend=Recording())

    compiled.eval()
    assert not model.training

    compiled.train()
    assert model.linear.training


def test_function_is_compiled_once_and_keeps_its_name() -> None:
    backend = Recording()

    def double(x: Tensor) -> Tensor:
        """Twice."""
        return x + x

    compiled = wherry.compile(double, backend=backend)

    assert torch.equal(compiled(X), X + X)
    assert torch.equal(compiled(X), X + X)
    assert backend.graphs == 1
    assert (compiled.__name__, compiled.__doc__) == ("double", "Twice.")


def test_decorator_with_and_without_arguments() -> None:
    class Scaled:
        factor = 3

        @wherry.compile(device="cpu", backend="eager")
        def scale(self, x: Tensor) -> Tensor:
            return x * self.factor

    @wherry.compile(backend="aot_eager")
    def halve(x: Tensor) -> Tensor:
        return x / 2

    @wherry.compile
    def plain(x: Tensor) -> Tensor:
        return x

    assert torch.equal(Scaled().scale(X), X * 3)
    assert torch.equal(halve(X), X / 2)
    assert callable(plain)


@pytest.mark.parametrize(
    "model",
    [torch.sin, nn.ReLU(), nn.LazyLinear(2), nn.Sequential(nn.Flatten(), nn.Identity()), Net().forward],
    ids=["builtin", "no parameters", "lazy", "sequential", "method"],
)
def test_other_things_that_can_be_called(model: Callable[[Tensor], Tensor]) -> None:
    compiled = wherry.compile(model, backend="eager")

    torch.testing.assert_close(compiled(X), model(X))


def test_options_arrive_as_torch_compile_hands_them_on() -> None:
    backend = Recording()

    wherry.compile(lambda x: x + 1, backend=backend, mode="fancy")(X)
    wherry.compile(lambda x: x + 2, backend=backend, options={"level": 2})(X)

    assert backend.options == [{"mode": "fancy"}, {"options": {"level": 2}}]


def test_dynamic_shapes_are_passed_on() -> None:
    backend = Recording()
    compiled = wherry.compile(lambda x: x + 1, backend=backend, dynamic=True)

    for rows in (2, 3, 5):
        compiled(torch.ones(rows, 4))

    assert backend.graphs == 1


def test_models_of_one_class_share_what_was_compiled() -> None:
    """As they do under torch.compile: else the ninth would exceed torch's limit and run eagerly without a word."""
    backend = Recording()

    for _ in range(12):
        wherry.compile(Net(), backend=backend)(X)

    assert backend.graphs == 1


def test_inner_compile_is_inlined_by_an_outer_one() -> None:
    module, function = wherry.compile(Net(), backend="eager"), wherry.compile(lambda x: x + 1, backend="eager")
    backend = Recording()

    outer = torch.compile(lambda x: function(module(x)), backend=backend, fullgraph=True)

    torch.testing.assert_close(outer(X), module(X) + 1)
    assert backend.graphs == 1


def _loaded(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.deepcopy, _loaded], ids=["deepcopy", "torch.save"])
def test_copy_has_the_net_too(again: Callable[[Any], Any]) -> None:
    model = Net()
    twin = again(wherry.compile(model, backend=fails))

    with pytest.warns(wherry.NotCompiled, match="Net runs eagerly from here on"):
        result = twin(X)

    torch.testing.assert_close(result, model(X))
    assert twin.linear.weight is not model.linear.weight


def test_disabled_is_the_model_itself_without_a_word() -> None:
    model = Net()

    assert wherry.compile(model, disable=True) is model
    assert wherry.compile(model, device="mps", disable=True) is model


# Where it is not


def test_prototype_is_the_model_itself_and_says_why_on_the_line() -> None:
    model = Net()

    with pytest.warns(wherry.NotCompiled) as said:
        returned = wherry.compile(model, "mps")

    assert returned is model
    assert [str(warning.message) for warning in said] == [
        "Net runs eagerly: torch.compile is a prototype on Apple MPS (strict=True compiles all the same)"
    ]
    assert said[0].filename == __file__


def test_strict_compiles_on_a_prototype() -> None:
    backend = Recording()

    compiled = wherry.compile(lambda x: x + 1, "mps", strict=True, backend=backend)

    assert torch.equal(compiled(X), X + 1)
    assert backend.graphs == 1


def test_strict_lets_a_failure_raise() -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="there is no kernel for it"):
        wherry.compile(Net(), strict=True, backend=fails)(X)


@pytest.mark.parametrize(("version", "maturity"), [("2.7.1", Maturity.NONE), ("2.8.0", Maturity.PROTOTYPE)])
def test_mps_has_a_compiler_since_torch_2_8(version: str, maturity: Maturity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))

    assert find("mps").compiles() is maturity


def test_older_torch_is_said_to_have_no_compiler_for_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.7.1"))

    with pytest.warns(wherry.NotCompiled, match=r"^Net runs eagerly: torch 2.7.1 cannot compile for Apple MPS$"):
        wherry.compile(Net(), torch.device("mps"))


@pytest.mark.parametrize("device", ["cpu", "cuda", "rocm", "cuda:7", "xpu", "auto", torch.device("cuda", 1), None])
def test_mature_devices_need_not_be_here(device: str | torch.device | None) -> None:
    compiled = wherry.compile(lambda x: x + 1, device, backend="eager")

    assert torch.equal(compiled(X), X + 1)


def test_module_that_moves_after_it_was_compiled_is_judged_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such device is needed: the CPU plays one."""
    model = Net()
    backend = Recording()
    compiled = wherry.compile(model, backend=backend)
    monkeypatch.setattr(type(find("cpu")), "compiles", lambda self: Maturity.PROTOTYPE)

    with pytest.warns(
        wherry.NotCompiled, match="^Net runs eagerly from here on: it is on cpu, and torch.compile is a proto"
    ):
        result = compiled(X)

    torch.testing.assert_close(result, model(X))
    compiled(torch.ones(7, 4))
    assert backend.graphs == 0


# In a rehearsal


def test_rehearsed_mps_does_what_mps_would_do() -> None:
    with wherry.rehearse("mps"):
        model = Net().to("mps")
        with pytest.warns(
            wherry.NotCompiled, match="^Net runs eagerly: it is on mps:0, and torch.compile is a prototype on"
        ):
            module = wherry.compile(model)
        with pytest.warns(wherry.NotCompiled, match="^double runs eagerly: torch.compile is a prototype on Apple MPS"):
            function = wherry.compile(double)

    assert module is model
    assert function is double


def double(x: Tensor) -> Tensor:
    return x + x


@pytest.mark.parametrize("name", ["cuda", "rocm", "xpu"])
def test_rehearsed_mature_device_runs_as_the_rehearsal_does(name: str) -> None:
    with wherry.rehearse(name) as rehearsal:
        model = Net().to(rehearsal.device)
        with pytest.warns(UserWarning, match="torch.compile runs eagerly in a rehearsal") as said:
            compiled = wherry.compile(model)

        assert compiled(X.to(rehearsal.device)).device == torch.device(rehearsal.device)

    assert said[0].filename == __file__


@pytest.mark.parametrize("name", ["cuda", "mps", "cpu"])
def test_what_was_compiled_before_takes_part_in_a_rehearsal(name: str) -> None:
    compiled = wherry.compile(double, backend=fails)

    with wherry.rehearse(name) as rehearsal:
        x = torch.ones(2, device=rehearsal.device)
        with pytest.warns(wherry.NotCompiled, match="^double runs eagerly in a rehearsal"):
            result = compiled(x)
        compiled(x)  # said once

        assert result.device == x.device


def test_and_is_compiled_again_afterwards() -> None:
    backend = Recording()
    compiled = wherry.compile(lambda x: x - 1, backend=backend)
    with wherry.rehearse("cuda"), pytest.warns(wherry.NotCompiled):
        compiled(X)

    compiled(X)

    assert backend.graphs == 1


# When the compiler fails


def test_failing_backend_falls_back_and_names_reason_and_place() -> None:
    model = Net()
    compiled = wherry.compile(model, backend=fails)

    with pytest.warns(wherry.NotCompiled) as said:
        first = compiled(X)
    second = compiled(torch.ones(5, 4))  # another kind of input: not tried again, nothing said

    line = Net.forward.__code__.co_firstlineno + 1
    assert [str(warning.message) for warning in said] == [
        "Net runs eagerly from here on: the compiler failed with NotImplementedError: there is no kernel for it, "
        f"compiling {__file__}:{line}"
    ]
    assert said[0].filename == __file__
    torch.testing.assert_close(first, model(X))
    torch.testing.assert_close(second, model(torch.ones(5, 4)))


@pytest.mark.slow
@pytest.mark.filterwarnings(MANY)
def test_missing_cpp_compiler_is_the_reason() -> None:
    options = {"cpp.cxx": ("no-such-compiler",), "fx_graph_cache": False}
    compiled = wherry.compile(Net(), options=options)

    with pytest.warns(
        wherry.NotCompiled, match=r"the compiler failed with InvalidCxxCompiler: No working C\+\+ compiler"
    ):
        result = compiled(X)

    assert result.shape == (2, 3)


def test_nothing_runs_twice_when_a_later_graph_fails() -> None:
    seen: list[str] = []

    def program(x: Tensor) -> Tensor:
        y = x + 1
        seen.append("first")
        torch._dynamo.graph_break()
        seen.append("second")
        return y * 2

    compiled = wherry.compile(program, backend=Recording(2))

    with pytest.warns(wherry.NotCompiled, match="there is no kernel for it"):
        result = compiled(X)

    assert torch.equal(result, (X + 1) * 2)
    assert seen == ["first", "second"]


def test_backend_that_spoils_the_graph_before_it_fails() -> None:
    def spoils(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            if node.op == "call_function":
                node.target = torch.sub
        graph.recompile()
        raise RuntimeError("halfway")

    with pytest.warns(wherry.NotCompiled, match="RuntimeError: halfway"):
        assert torch.equal(wherry.compile(lambda x: torch.add(x, 1), backend=spoils)(X), X + 1)


@pytest.mark.skipif(
    not hasattr(torch._functorch.config, "force_non_lazy_backward_lowering"),
    reason="this torch compiles it when it runs",
)
def test_failing_backward_falls_back_as_well() -> None:
    def runs_it(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        return make_boxed_func(graph.forward)

    model = Net()
    compiled = wherry.compile(model, backend=aot_autograd(fw_compiler=runs_it, bw_compiler=fails))

    with pytest.warns(wherry.NotCompiled, match="there is no kernel for it"):
        result = compiled(X)
    result.sum().backward()

    assert model.linear.weight.grad is not None


def _break_tracing(monkeypatch: pytest.MonkeyPatch, *, after: int = 0) -> None:
    """The tracer has a bug, which it meets from the frame number `after` on."""
    from torch._dynamo import convert_frame

    original = convert_frame._compile
    frames: list[int] = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        frames.append(1)
        if len(frames) > after:
            raise InternalTorchDynamoError("KeyError: 'there is a bug'")
        return original(*args, **kwargs)

    monkeypatch.setattr(convert_frame, "_compile", broken)


def test_failing_tracer_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _break_tracing(monkeypatch)
    compiled = wherry.compile(double, backend="eager")

    with pytest.warns(wherry.NotCompiled, match="failed with InternalTorchDynamoError: KeyError: 'there is a bug'"):
        result = compiled(X)

    assert torch.equal(result, X + X)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


def test_failing_tracer_does_not_make_a_part_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    _break_tracing(monkeypatch, after=1)
    seen: list[str] = []

    def program(x: Tensor) -> Tensor:
        seen.append("first")
        torch._dynamo.graph_break()
        return x * 2

    compiled = wherry.compile(program, backend="eager")

    with pytest.raises(InternalTorchDynamoError, match="there is a bug") as caught:
        compiled(X)

    assert seen == ["first"]
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == [
            "wherry: a part of program had run when the compiler failed, so it was not run again eagerly. "
            "The next call runs eagerly."
        ]
    assert torch.equal(compiled(X), X * 2)


def test_operator_that_cannot_be_traced_falls_back() -> None:
    with torch.library._scoped_library("wherry_test_compile", "FRAGMENT") as library:
        library.define("untraceable(Tensor x) -> Tensor")
        library.impl("untraceable", lambda x: x + 1, "CPU")

        def forgotten(x: Tensor) -> Tensor:
            raise RuntimeError("somebody forgot the shapes")

        torch.library.register_fake("wherry_test_compile::untraceable", forgotten, lib=library)

        def program(x: Tensor) -> Tensor:
            return torch.ops.wherry_test_compile.untraceable(x)

        compiled = wherry.compile(program, backend="eager")

        with pytest.warns(
            wherry.NotCompiled, match="the compiler failed with TorchRuntimeError: .*, compiling .*test_comp"
        ):
            result = compiled(X)

    assert torch.equal(result, X + 1)


@pytest.mark.parametrize("fail", [_break_tracing, lambda patch: None], ids=["tracer", "backend"])
def test_random_numbers_are_those_of_an_eager_run(fail: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch)
    model = nn.Sequential(nn.Dropout())
    compiled = wherry.compile(model, backend=fails)

    torch.manual_seed(0)
    with pytest.warns(wherry.NotCompiled):
        result = compiled(X)

    torch.manual_seed(0)
    assert torch.equal(result, model(X))


def test_python_too_new_for_torch_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import eval_frame

    def refuse() -> None:
        raise RuntimeError("Python 3.99+ not yet supported for torch.compile")

    monkeypatch.setattr(eval_frame, "check_if_dynamo_supported", refuse)

    with pytest.warns(
        wherry.NotCompiled, match="^double runs eagerly: Python 3.99. not yet supported for torch.compile$"
    ):
        assert wherry.compile(double) is double
    with pytest.raises(RuntimeError, match="3.99"):
        wherry.compile(double, strict=True)


def test_what_torch_refuses_to_compile_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError("torch.compile is not supported on Python 3.99+")

    monkeypatch.setattr(torch, "compile", refuse)

    with pytest.warns(
        wherry.NotCompiled, match="^double runs eagerly: torch.compile is not supported on Python 3.99.$"
    ):
        assert wherry.compile(double) is double


# Errors that are not the compiler's


@pytest.mark.filterwarnings("error")
def test_wrong_shapes_raise_what_eager_raises_and_leave_it_compiled() -> None:
    backend = Recording()
    compiled = wherry.compile(Net(), backend=backend)

    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        compiled(torch.ones(2, 5))
    compiled(X)

    assert type(caught.value) is RuntimeError
    assert caught.value.__context__ is None
    assert backend.graphs == 1


@pytest.mark.filterwarnings("error")
def test_dimension_out_of_range_reads_as_in_eager() -> None:
    with pytest.raises(
        IndexError, match=r"^Dimension out of range \(expected to be in range of \[-2, 1\], but got 5\)$"
    ):
        wherry.compile(lambda x: torch.sum(x, dim=5), backend="eager")(X)


@pytest.mark.filterwarnings("error")
def test_exception_of_the_program_is_its_own() -> None:
    def picky(x: Tensor) -> Tensor:
        if x.shape[0] != 2:
            raise ValueError("two rows, please")
        return x + 1

    with pytest.raises(ValueError, match="two rows, please"):
        wherry.compile(picky, backend="eager")(torch.ones(3, 4))


@pytest.mark.filterwarnings("error")
def test_graph_break_under_fullgraph_raises() -> None:
    def breaks(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x

    with pytest.raises(Unsupported):
        wherry.compile(breaks, backend="eager", fullgraph=True)(X)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"mode": "default", "options": {}}, RuntimeError, "Either mode or options can be specified"),
        ({"mode": "fastest"}, RuntimeError, "Unrecognized mode=fastest"),
        ({"options": {"no_such_option": 1}}, RuntimeError, "Unexpected optimization option no_such_option"),
        ({"backend": "inductro"}, InvalidBackend, "Invalid backend: 'inductro'"),
        ({"colour": 1}, TypeError, "unexpected keyword argument 'colour'"),
        ({"device": "cdua"}, wherry.UnknownDevice, 'Did you mean "cuda"'),
        ({"device": "cuda:one"}, wherry.UnknownDevice, '"cuda:one" is no device wherry knows'),
    ],
)
@pytest.mark.filterwarnings(MANY)
def test_mistakes_of_the_caller_raise_at_once(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        wherry.compile(double, **options)


def test_device_in_the_place_of_the_model_is_explained() -> None:
    with pytest.raises(TypeError, match='takes a module or a function, not .cuda.; for a device, write device="cuda"'):
        wherry.compile("cuda")  # type: ignore[call-overload]


@pytest.mark.parametrize("strict", [False, True])
def test_missing_torch_is_a_sentence(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(wherry.TorchMissing, match=r"^wherry.compile\(\) needs torch, which is not installed here"):
        wherry.compile(double, strict=strict)
