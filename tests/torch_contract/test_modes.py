"""What a dispatch mode sees, how it steps aside, and how the ops below it are run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
)

from wherry.dispatch import (
    DispatchMode,
    FakeTensorMode,
    autograd_node,
    higher_order_kernel,
    pop_mode,
    push_mode,
    runner,
)


class Recording(TorchDispatchMode):
    """Notes the ops that go by."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[OpOverload] = []
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        self.calls.append((args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    @property
    def names(self) -> list[str]:
        return [func._schema.name.removeprefix("aten::") for func in self.seen]


@pytest.fixture
def mode() -> Iterator[Recording]:
    with Recording() as recording:
        yield recording


def test_mode_is_handed_overloads(mode: Recording) -> None:
    torch.ones(2) + 1

    assert all(isinstance(func, OpOverload) for func in mode.seen)
    assert mode.names == ["ones", "add"]


def test_mode_sees_backward_and_optimizer(mode: Recording) -> None:
    p = torch.nn.Parameter(torch.ones(2))
    (p.exp()).sum().backward()
    torch.optim.SGD([p], lr=0.1, foreach=False).step()

    assert {"exp", "sum", "mul", "add_"} <= set(mode.names)


def test_mode_is_not_called_from_within_itself() -> None:
    class Computes(TorchDispatchMode):
        depth = most = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.depth += 1
            self.most = max(self.most, self.depth)
            torch.ones(1) + 1
            out = func(*args, **(kwargs or {}))
            self.depth -= 1
            return out

    with Computes() as computes:
        torch.ones(2) * 2

    assert computes.most == 1


def test_mode_may_listen_again_from_within_itself() -> None:
    class Decomposes(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(func._schema.name)
            if func is torch.ops.aten.addmm.default:
                with self:
                    return args[0] + torch.mm(args[1], args[2])
            return func(*args, **(kwargs or {}))

    with Decomposes() as decomposes:
        torch.addmm(torch.ones(2), torch.ones(2, 2), torch.ones(2, 2))

    assert decomposes.seen[-3:] == ["aten::addmm", "aten::mm", "aten::add"]


def test_innermost_mode_is_asked_first_and_the_outer_one_after_it() -> None:
    order: list[str] = []

    class Named(TorchDispatchMode):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            order.append(self.name)
            return func(*args, **(kwargs or {}))

    with Named("outer"), Named("inner"):
        torch.ones(2)

    assert order == ["inner", "outer"]


def test_op_below_the_mode_skips_the_python_wrapper(mode: Recording) -> None:
    assert torch.equal(torch.ops.aten.add.Tensor._op(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


def test_kernel_of_one_dispatch_key_runs_and_its_ops_are_seen(mode: Recording) -> None:
    x = torch.ones(2)
    mode.seen.clear()

    torch.ops.aten.silu_backward.default._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, x, x)

    assert "silu_backward" not in mode.names
    assert "mul" in mode.names


def test_kernels_are_known_by_key() -> None:
    has = torch._C._dispatch_has_kernel_for_dispatch_key

    assert has("aten::add.Tensor", "CPU")
    assert not has("aten::reshape", "CPU")
    assert has("aten::reshape", "CompositeImplicitAutograd")


def test_python_dispatch_key_can_be_told_from_overload_names() -> None:
    assert torch.ops.aten.add.Tensor._schema.name == "aten::add"
    assert torch.ops.aten.add.Tensor._schema.overload_name == "Tensor"
    assert torch.ops.aten.relu.default._schema.overload_name == ""


def test_mode_that_does_not_want_dynamo_is_called_without_its_wrapper() -> None:
    class Plain(Recording):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    assert not hasattr(Plain.__torch_dispatch__, "_torchdynamo_disable")
    with Plain() as plain:
        torch.ones(2)
    assert plain.names == ["ones"]


def test_modes_may_be_disabled(mode: Recording) -> None:
    with _disable_current_modes():
        torch.ones(2)
        assert _get_current_dispatch_mode_stack() == []

    assert mode.seen == []
    assert _get_current_dispatch_mode() is mode


def test_modes_are_per_thread(mode: Recording) -> None:
    import threading

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(len(_get_current_dispatch_mode_stack())))
    thread.start()
    thread.join()

    assert found == [0]


def test_backward_runs_under_the_mode_of_the_thread_that_calls_it() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp().sum()

    with Recording() as recording:
        y.backward()

    assert "mul" in recording.names


class Wrapper(Tensor):
    """Holds a tensor and unwraps itself when no mode does."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapper:
        self = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        self.inner = inner
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls(func(*(a.inner if isinstance(a, Wrapper) else a for a in args), **(kwargs or {})))


def test_not_implemented_lets_a_subclass_unwrap_itself() -> None:
    class Declines(Recording):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if Wrapper in types:
                return NotImplemented
            return super().__torch_dispatch__(func, types, args, kwargs)

    x = Wrapper(torch.ones(2))

    with Declines() as declines:
        y = x * 2

    assert type(y) is Wrapper
    assert y.inner.tolist() == [2, 2]
    assert "mul" in declines.names


def test_plain_tensors_and_parameters_are_no_types_of_a_dispatch() -> None:
    seen: list[Any] = []

    class Types(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.extend(types)
            return func(*args, **(kwargs or {}))

    with Types():
        torch.nn.Parameter(torch.ones(2)) * torch.ones(2)

    assert seen == []


def test_to_becomes_to_copy(mode: Recording) -> None:
    torch.ones(2).to(torch.float64)

    assert mode.names == ["ones", "_to_copy"]


def test_to_where_it_is_becomes_nothing(mode: Recording) -> None:
    x = torch.ones(2)

    assert x.to("cpu") is x
    assert mode.names == ["ones"]


def test_tensor_constructor_ends_in_lift_fresh(mode: Recording) -> None:
    torch.tensor([1.0, 2.0])

    assert mode.names[0] in {"lift_fresh", "detach"}


def test_hook_on_the_node_of_a_movement_may_replace_its_gradient() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.to(torch.float32, copy=True)
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda gradients, outputs: tuple(g * 3 for g in gradients))

    y.sum().backward()

    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]
    assert y.grad_fn.name() == "ToCopyBackward0"


def test_inference_mode_leaves_reshape_whole(mode: Recording) -> None:
    x = torch.ones(2, 3).t()
    mode.seen.clear()

    with torch.inference_mode():
        y = torch.ones(2, 3).t().reshape(6)

    assert y.shape == x.reshape(6).shape
    assert {"reshape"} & set(mode.names) or "clone" in mode.names


def test_svd_computes_its_vectors_under_any_mode(mode: Recording) -> None:
    torch.linalg.svdvals(torch.eye(2))

    args, kwargs = next(
        call for func, call in zip(mode.seen, mode.calls, strict=True) if func._schema.name == "aten::_linalg_svd"
    )
    arguments = [a.name for a in torch.ops.aten._linalg_svd.default._schema.arguments]
    given = dict(zip(arguments, args, strict=False)) | kwargs
    assert given.get("compute_uv", True) is True


def test_product_of_two_batches_is_folded_under_any_mode() -> None:
    a, b = torch.ones(5, 2, 3), torch.ones(1, 3, 4)

    with torch.autograd.profiler.profile() as plain:
        a @ b
    with Recording() as recording:
        a @ b

    assert "aten::bmm" in {event.name for event in plain.function_events}
    assert "mm" in recording.names
    assert "bmm" not in recording.names


def test_kernel_of_others_below_a_mode_does_not_see_the_conjugate_bit() -> None:
    x = torch.tensor([[1 + 2j, 3 - 1j], [0.5j, 2]])

    with Recording():
        below = torch.pinverse(x)

    assert not torch.allclose(below, torch.pinverse(x))  # if they agree, dispatch.runner has nothing to do any more
    assert torch.allclose(with_help(torch.pinverse, x), torch.pinverse(x))


def with_help(function: Any, x: Tensor) -> Tensor:
    """A function in a mode that runs ops by `dispatch.runner`."""

    class Helped(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return runner(func)(*args, **(kwargs or {}))

    with Helped():
        return function(x)


def test_engine_puts_the_modes_back_that_a_hook_took_away_before_a_node_failed() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise ArithmeticError

    with Recording() as recording:
        y = Fails.apply(torch.ones(2, requires_grad=True))
        y.grad_fn.register_prehook(lambda gradients: torch.utils._python_dispatch._pop_mode(None) and None)
        with pytest.raises(ArithmeticError):
            y.sum().backward()

        assert _get_current_dispatch_mode() is recording


def test_only_mode_of_its_kind_is_taken_off_and_put_back() -> None:
    with Rehearsing() as outer:
        assert pop_mode(Rehearsing) is outer
        assert _get_current_dispatch_mode() is None
        push_mode(outer)
        assert _get_current_dispatch_mode() is outer
        with Recording() as inner:
            assert pop_mode(Rehearsing) is None
            assert _get_current_dispatch_mode() is inner


class Rehearsing(DispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_backward_of_a_product_asks_who_listens(mode: Recording) -> None:
    torch.ones(3, requires_grad=True).prod().backward()

    assert "cumprod" in mode.names  # without a mode: result / input, if no input is zero


def test_no_subclass_function_is_called_where_they_are_disabled() -> None:
    called: list[Any] = []

    class Watched(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2).as_subclass(Watched)
    with torch._C.DisableTorchFunctionSubclass():
        x + 1
    silent = not called
    x + 1

    assert silent
    assert called


def test_fake_tensor_mode_is_asked_after_every_other_mode(mode: Recording) -> None:
    with FakeTensorMode():
        torch.ones(2)

    assert mode.names == ["ones"]


def test_higher_order_operator_gives_its_eager_kernel_away() -> None:
    from torch._higher_order_ops.flex_attention import flex_attention

    assert callable(higher_order_kernel(flex_attention))


def test_node_tells_its_name_to_the_ops_of_its_backward() -> None:
    names: list[str | None] = []

    class Asking(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(autograd_node())
            return func(*args, **(kwargs or {}))

    with Asking():
        torch.renorm(torch.ones(2, 2, requires_grad=True), 2, 0, 1.0).sum().backward()

    assert "RenormBackward0" in names
    assert names[0] is None
