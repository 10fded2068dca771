"""Gradients: they reside where their tensors do, and a movement carries them back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from wherry.rehearse import rehearse

Context = Any  # of an autograd.Function


def place(x: Tensor | None) -> str:
    assert x is not None
    return str(x.device)


# The way back of a movement


MOVES: dict[str, Callable[[Tensor, str], Tensor]] = {
    "to": lambda x, d: x.to(d),
    "to and dtype": lambda x, d: x.to(d, torch.float16),
    "type_as": lambda x, d: x.type_as(torch.zeros(1, device=d)),
    "copy": lambda x, d: x.to(d, copy=True),
    "a view of it": lambda x, d: x[None].to(d)[0],
    "copy_": lambda x, d: torch.zeros(3, device=d).copy_(x),
    "slice": lambda x, d: sliced(torch.zeros(3, device=d), x),
}


def sliced(target: Tensor, x: Tensor) -> Tensor:
    target[:] = x
    return target


@pytest.mark.parametrize("name", MOVES)
def test_gradient_of_a_movement_comes_back(name: str, device: str) -> None:
    x = torch.ones(3, requires_grad=True)

    y = MOVES[name](x, device)
    (y * torch.full((3,), 2.0, device=device)).sum().backward()

    assert place(x.grad) == "cpu"
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


def test_gradient_goes_to_the_device_when_the_tensor_went_to_the_host(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)

    (x.cpu() * torch.full((3,), 3.0)).sum().backward()

    assert place(x.grad) == device
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3, 3]


def test_gradient_travels_there_and_back_again(pair: tuple[str, str]) -> None:
    x = torch.ones(3, device=pair[0], requires_grad=True)

    (((x * 2).to(pair[1]) * 2).cpu() * 2).to(pair[0]).sum().backward()

    assert place(x.grad) == pair[0]
    assert x.grad is not None
    assert x.grad.tolist() == [8, 8, 8]


def test_gradient_of_autograd_grad_comes_back(device: str) -> None:
    x = torch.ones(3, requires_grad=True)

    (gradient,) = torch.autograd.grad(x.to(device).pow(2).sum(), x)

    assert place(gradient) == "cpu"
    assert gradient.tolist() == [2, 2, 2]


def test_moved_tensor_is_no_leaf_and_its_original_is(device: str) -> None:
    x = torch.ones(3, requires_grad=True)
    y = x.to(device)

    assert (x.is_leaf, y.is_leaf) == (True, False)
    assert torch.ones(3, device=device, requires_grad=True).is_leaf
    assert y.grad_fn is not None
    assert y.grad_fn.name() == "ToCopyBackward0"


def test_retained_gradient_of_a_moved_tensor_is_on_the_device(device: str) -> None:
    x = torch.ones(3, requires_grad=True)
    y = x.to(device)
    y.retain_grad()

    y.sum().backward()

    assert (place(x.grad), place(y.grad)) == ("cpu", device)


def test_shared_parameter_gathers_gradients_from_both_sides(device: str) -> None:
    x = torch.ones(3, requires_grad=True)

    (x.to(device).sum().cpu() + x.sum()).backward()

    assert x.grad is not None
    assert place(x.grad) == "cpu"
    assert x.grad.tolist() == [2, 2, 2]


# Where gradients are


def test_gradients_of_a_model_are_on_the_device(device: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 1)).to(device)

    model(torch.ones(2, 3, device=device)).sum().backward()

    assert {place(p.grad) for p in model.parameters()} == {device}


def test_seed_gradient_of_another_device_is_refused(device: str) -> None:
    y = torch.ones(3, device=device, requires_grad=True) * 2

    with pytest.raises(RuntimeError):
        y.backward(torch.ones(3))
    y.backward(torch.ones(3, device=device))


def test_second_derivative_is_on_the_device(device: str) -> None:
    x = torch.full((3,), 2.0, requires_grad=True)

    (first,) = torch.autograd.grad(x.to(device).pow(3).sum().cpu(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.to(device).sum(), x)

    assert place(second) == "cpu"
    assert second.tolist() == [12, 12, 12]


def test_second_derivative_within_the_device(device: str) -> None:
    x = torch.full((3,), 2.0, device=device, requires_grad=True)

    (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)

    assert (place(first), place(second)) == (device, device)
    assert second.tolist() == [12, 12, 12]


def test_accumulated_gradients_stay_on_the_device(device: str) -> None:
    p = nn.Parameter(torch.ones(3, device=device))

    for _ in range(2):
        (p * 2).sum().backward()

    assert p.grad is not None
    assert place(p.grad) == device
    assert p.grad.tolist() == [4, 4, 4]


@pytest.mark.parametrize("use", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_modes_keep_the_device(use: Callable[[], Any], device: str) -> None:
    with use():
        assert place(torch.ones(3, device=device) * 2) == device


# Hooks


def test_hook_of_a_tensor_sees_the_device(device: str) -> None:
    seen: list[str] = []
    x = torch.ones(3, device=device, requires_grad=True)
    x.register_hook(lambda g: seen.append(place(g)))

    (x * 2).sum().backward()

    assert seen == [device]


def test_hooks_on_both_ends_of_a_movement_see_their_own_device(device: str) -> None:
    seen: list[str] = []
    x = torch.ones(3, requires_grad=True)
    y = x.to(device)
    x.register_hook(lambda g: seen.append(place(g)))
    y.register_hook(lambda g: seen.append(place(g)))

    (y * 2).sum().backward()

    assert seen == [device, "cpu"]


def test_hook_after_accumulation_sees_the_device(device: str) -> None:
    seen: list[str] = []
    p = nn.Parameter(torch.ones(3, device=device))
    p.register_post_accumulate_grad_hook(lambda q: seen.append(place(q.grad)))

    p.sum().backward()

    assert seen == [device]


def test_hooks_of_a_module_see_the_device(device: str) -> None:
    seen: list[str] = []
    layer = nn.Linear(2, 2).to(device)
    layer.register_forward_hook(lambda m, i, o: seen.append(place(o)))
    layer.register_forward_pre_hook(lambda m, i: seen.append(place(i[0])))
    layer.register_full_backward_hook(lambda m, i, o: seen.append(place(o[0])))

    layer(torch.ones(1, 2, device=device, requires_grad=True)).sum().backward()

    assert seen == [device] * 3


def test_hook_that_answers_from_the_host_is_refused(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g.cpu())

    with pytest.raises(RuntimeError):
        y.sum().backward()


def test_saved_tensors_go_through_hooks_to_the_host_and_back(device: str) -> None:
    packed: list[str] = []

    def pack(x: Tensor) -> tuple[torch.device, Tensor]:
        packed.append(place(x))
        return x.device, x.cpu()

    def unpack(kept: tuple[torch.device, Tensor]) -> Tensor:
        return kept[1].to(kept[0])

    x = torch.full((3,), 2.0, device=device, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x.pow(2).sum()
    y.backward()

    assert x.grad is not None
    assert set(packed) == {device}
    assert (place(x.grad), x.grad.tolist()) == (device, [4, 4, 4])


def test_saved_tensors_may_be_kept_on_the_host(device: str) -> None:
    x = torch.full((3,), 2.0, device=device, requires_grad=True)

    with torch.autograd.graph.save_on_cpu():
        y = x.pow(2).sum()
    y.backward()

    assert x.grad is not None
    assert (place(x.grad), x.grad.tolist()) == (device, [4, 4, 4])


# Functions of one's own


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.seen = place(x)
        return x * 2

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        assert ctx.seen == place(x) == place(gradients[0])
        return gradients[0] * 2


class DoubleApart(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2


@pytest.mark.parametrize("function", [Double, DoubleApart])
def test_function_of_the_programs_own_sees_the_device(function: type[torch.autograd.Function], device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)

    y = function.apply(x)
    y.sum().backward()

    assert x.grad is not None
    assert (place(y), place(x.grad)) == (device, device)
    assert x.grad.tolist() == [2, 2, 2]


def test_function_whose_backward_strays_is_refused(device: str) -> None:
    class Strays(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Context, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Context, *gradients: Tensor) -> Tensor:
            return torch.ones(3)

    x = torch.ones(3, device=device, requires_grad=True)

    with pytest.raises(RuntimeError):
        (Strays.apply(x * 1)).sum().backward()


# Function transforms


def cube(x: Tensor) -> Tensor:
    return (x**3).sum()


TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "grad": torch.func.grad(cube),
    "grad of grad": torch.func.grad(lambda x: torch.func.grad(cube)(x).sum()),
    "vmap": torch.func.vmap(lambda x: x * 2),
    "vmap of grad": torch.func.vmap(torch.func.grad(lambda x: x**3)),
    "vmap that makes a tensor": torch.func.vmap(lambda x: x + torch.ones(x.shape, device=x.device)),
    "vmap of zeros_like": torch.func.vmap(lambda x: x + torch.zeros_like(x)),
    "jacrev": torch.func.jacrev(lambda x: x**2),
    "jacfwd": torch.func.jacfwd(lambda x: x**2),
    "hessian": torch.func.hessian(cube),
    "jvp": lambda x: torch.func.jvp(cube, (x,), (torch.ones_like(x),))[1],
    "vjp": lambda x: torch.func.vjp(cube, x)[1](torch.ones((), device=x.device))[0],
    "functionalize": torch.func.functionalize(lambda x: x.clone().add_(1)),
    "linearize": lambda x: torch.func.linearize(cube, x)[1](torch.ones_like(x)),
    "jacobian": lambda x: torch.autograd.functional.jacobian(lambda y: y**2, x),
    "vmap over a function of its own": torch.func.vmap(DoubleApart.apply),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # forward mode scripts its formulas on first use
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # linearize traces
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_keeps_device_and_values(name: str, device: str) -> None:
    x = torch.arange(3.0)

    result = TRANSFORMS[name](x.to(device))

    assert place(result) == device
    assert torch.equal(result.cpu(), TRANSFORMS[name](x))


def test_stray_inside_a_transform_is_refused(device: str) -> None:
    table = torch.ones(3)

    with pytest.raises(RuntimeError, match="same device"):
        torch.func.vmap(lambda x: x + table)(torch.zeros(2, 3, device=device))
    with pytest.raises(RuntimeError, match="same device"):
        torch.func.grad(lambda x: (x * table).sum())(torch.zeros(3, device=device))


def test_functional_call_uses_the_parameters_it_is_given(device: str) -> None:
    model = nn.Linear(2, 1)
    state = {k: v.to(device) for k, v in model.state_dict().items()}

    assert place(torch.func.functional_call(model, state, (torch.ones(1, 2, device=device),))) == device
    with pytest.raises(RuntimeError, match="same device"):
        torch.func.functional_call(model, state, (torch.ones(1, 2),))


# Memory for time


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_recomputes_on_the_device(reentrant: bool, device: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).to(device)
    x = torch.ones(2, 3, device=device, requires_grad=True)

    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant).sum().backward()

    assert {place(p.grad) for p in model.parameters()} | {place(x.grad)} == {device}


@pytest.mark.parametrize("name", ["cuda", "rocm", "xpu"])  # of a Mac, torch.utils.checkpoint keeps no generator state
def test_checkpoint_draws_the_same_numbers_again(name: str) -> None:
    seen: list[Tensor] = []

    def noisy(x: Tensor) -> Tensor:
        seen.append(torch.rand(4, device=x.device))
        return x * seen[-1]

    with rehearse(name) as rehearsal:
        x = torch.ones(4, device=rehearsal.device, requires_grad=True)
        torch.utils.checkpoint.checkpoint(noisy, x, use_reentrant=False).sum().backward()

        assert len(seen) == 2
        assert torch.equal(*seen)
        assert x.grad is not None
        assert torch.equal(x.grad, seen[0])


def test_backward_in_another_thread_sees_the_device(device: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = torch.ones(3, requires_grad=True)
    y = x.to(device).sum()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(y.backward).result()

    assert place(x.grad) == "cpu"


def test_anomaly_mode_works(device: str) -> None:
    x = torch.ones(3, requires_grad=True)

    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        x.to(device).sum().backward()

    assert place(x.grad) == "cpu"


def test_gradcheck_passes_on_the_device(device: str) -> None:
    if device.startswith("mps"):
        pytest.skip("gradcheck wants float64, which MPS lacks")
    dtype = torch.float64

    assert torch.autograd.gradcheck(torch.sin, torch.randn(3, dtype=dtype, device=device, requires_grad=True))
    assert torch.autograd.gradcheck(lambda x: x.to(device).sin(), torch.randn(3, dtype=dtype, requires_grad=True))


# Nodes that ask whether a dispatch mode listens


def test_loss_that_depends_on_the_gauge_is_refused_as_without_a_rehearsal(device: str) -> None:
    x = torch.tensor([[1.3, 2.1], [-0.7, 0.9]], device=device, requires_grad=True)
    loss = torch.linalg.eig(x).eigenvectors.imag.sum()

    with pytest.raises(RuntimeError, match="linalg_eig_backward: The eigenvectors in the complex case"):
        loss.backward()

    assert place(x + 1) == device


def test_gradient_of_a_product_is_rounded_as_on_the_cpu_and_on_the_device(device: str) -> None:
    values = torch.rand(50, generator=torch.Generator().manual_seed(0)) + 0.5
    wanted = values.clone().requires_grad_()
    wanted.prod().backward()

    x = values.to(device).requires_grad_()
    x.prod().backward()

    assert place(x.grad) == device
    assert torch.equal(x.grad.cpu(), wanted.grad)


def test_gradient_of_a_gradient_of_a_product_is_on_the_device(device: str) -> None:
    x = torch.tensor([2.0, 3.0, 5.0], device=device, requires_grad=True)
    (first,) = torch.autograd.grad(x.prod(), x, create_graph=True)

    (second,) = torch.autograd.grad(first.sum(), x)

    assert place(first) == place(second) == device
    assert second.tolist() == [8, 7, 5]


def test_graph_that_is_kept_runs_again(device: str) -> None:
    x = torch.tensor([2.0, 3.0], device=device, requires_grad=True)
    y = x.cumprod(0).sum()

    y.backward(retain_graph=True)
    y.backward()

    assert place(x.grad) == device
    assert x.grad.tolist() == [8, 4]


# Complex numbers


def test_inverse_of_complex_numbers_is_that_of_the_cpu(device: str) -> None:
    if device.startswith("mps"):
        pytest.skip("MPS computes no pseudoinverse")
    x = torch.tensor([[1 + 2j, 3 - 1j, 1j], [0.5j, 2, 1]], dtype=torch.complex64)

    assert torch.equal(torch.pinverse(x.to(device)).cpu(), torch.pinverse(x))


# Products


def test_half_precision_is_multiplied_into_float32(device: str) -> None:
    a = torch.full((1, 4096), 1.0, dtype=torch.float16, device=device)
    if device.startswith("mps"):
        with pytest.raises(NotImplementedError):
            torch.mm(a, a.T, out_dtype=torch.float32)
        return

    wide = torch.mm(a * 3, a.T * 7, out_dtype=torch.float32)

    assert (place(wide), wide.dtype, wide.item()) == (device, torch.float32, 21 * 4096)
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        torch.mm(a, a.T, out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.mm(a, a.T.cpu(), out_dtype=torch.float32)


def products() -> dict[str, Callable[[Tensor], Tensor]]:
    return {
        "prod": lambda x: x.prod(1),
        "cumprod": lambda x: x.cumprod(1),
        "masked_fill": lambda x: x.masked_fill(x > 2, x[0, 0]),
        "svdvals": torch.linalg.svdvals,
    }


@pytest.mark.parametrize("name", products())
def test_node_that_asks_who_listens_computes_its_checkpoint_again_on_the_device(name: str, device: str) -> None:
    function = products()[name]
    x = torch.tensor([[1.5, 2.0], [0.5, 3.0]], requires_grad=True)
    function(x * 2).sum().backward()

    y = x.detach().to(device).requires_grad_()
    torch.utils.checkpoint.checkpoint(function, y * 2, use_reentrant=False).sum().backward()

    assert place(y.grad) == device
    assert torch.equal(y.grad.cpu(), x.grad)


def test_threads_go_backward_through_one_graph(device: str) -> None:
    x = torch.rand(20, 5, device=device, requires_grad=True)
    z = x.prod(1).cumprod(0).sum()
    wanted = torch.autograd.grad(z, x, retain_graph=True)[0].cpu()
    wrong: list[str] = []

    def often() -> None:
        with contextlib.suppress(AttributeError):
            for _ in range(30):
                (g,) = torch.autograd.grad(z, x, retain_graph=True)
                if place(g) != device or not torch.equal(g.cpu(), wanted):
                    wrong.append(place(g))

    threads = [threading.Thread(target=often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch loads parts of itself on the first transform
@pytest.mark.parametrize("name", ["svdvals", "eigvalsh", "norm"])
def test_singular_values_are_differentiated_by_transforms(name: str, device: str) -> None:
    function = {
        "svdvals": lambda x: torch.linalg.svdvals(x).sum(),
        "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.T).sum(),
        "norm": lambda x: torch.linalg.norm(x, 2),
    }[name]
    x = torch.tensor([[1.0, 2.0], [0.5, 4.0]])

    ours = torch.func.grad(function)(x.to(device))
    _, tangent = torch.func.jvp(function, (x.to(device),), (torch.ones_like(x).to(device),))

    assert place(ours) == place(tangent) == device
    assert torch.equal(ours.cpu(), torch.func.grad(function)(x))


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch loads parts of itself on the first transform
@pytest.mark.parametrize("name", ["exp", "prod", "cumprod"])
def test_jacobian_is_computed_at_once(name: str, device: str) -> None:
    function = {"exp": torch.exp, "prod": lambda x: x.prod().reshape(1), "cumprod": lambda x: x.cumprod(0)}[name]
    x = torch.tensor([1.0, 2.0, 3.0])

    found = torch.autograd.functional.jacobian(function, x.to(device), vectorize=True)

    assert place(found) == device
    assert torch.allclose(found.cpu(), torch.autograd.functional.jacobian(function, x))


def test_product_with_no_batch_is_empty(device: str) -> None:
    product = torch.empty(1, 2, 4, device=device) @ torch.empty(0, 4, 3, device=device)

    assert (place(product), product.shape) == (device, (0, 2, 3))
