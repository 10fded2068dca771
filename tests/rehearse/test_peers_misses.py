"""What other ways of running CUDA programs without CUDA get wrong, and what their users ask for: each right here.

A peer that keeps a real CPU tensor and a list of "fake" ones lets strays pass, loses the device on the way through views,
named results, autograd and functions taken by name, and cannot tell one device from another. The mismatches of operators
stand in test_laws.py; movements and factories in test_devices.py.
"""

from __future__ import annotations

import copy
import gc
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, ones

from wherry.rehearse import Rehearsal, rehearse


def places(*tensors: Tensor) -> set[str]:
    return {str(t.device) for t in tensors}


# A stray that the program holds somewhere


class Positional(nn.Module):
    """Forgets that a plain attribute is not moved."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.table


def test_plain_attribute_stays_behind(device: str) -> None:
    model = Positional().to(device)

    with pytest.raises(RuntimeError, match=r"at least two devices, .*:0 and cpu"):
        model(torch.zeros(1, 4, device=device))


def test_buffer_does_not_stay_behind(device: str) -> None:
    model = Positional()
    table = model.table
    del model.table
    model.register_buffer("table", table)

    assert places(model.to(device)(torch.zeros(1, 4, device=device))) == {device}


def test_list_of_modules_that_is_no_module_list_stays_behind(device: str) -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [nn.Linear(2, 2)]

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks[0](x)

    with pytest.raises(RuntimeError, match="same device"):
        Blocks().to(device)(torch.zeros(1, 2, device=device))


def test_optimizer_state_that_is_stale_is_refused(device: str) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

    model.to(device)
    model(torch.ones(1, 2, device=device)).sum().backward()

    with pytest.raises(RuntimeError, match="same device"):
        optimizer.step()


@pytest.mark.parametrize("foreach", [False, True])
def test_momentum_that_is_stale_is_refused(foreach: bool, device: str) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

    model.to(device)
    model(torch.ones(1, 2, device=device)).sum().backward()

    with pytest.raises(RuntimeError, match="same device"):
        optimizer.step()


def test_gradient_of_another_device_is_refused(device: str) -> None:
    p = nn.Parameter(torch.zeros(2, device=device))

    with pytest.raises(RuntimeError):
        p.grad = torch.zeros(2)


def test_generator_of_another_device_is_refused(device: str) -> None:
    kind = torch.device(device).type

    with pytest.raises(RuntimeError, match=f"Expected a '{kind}' device type for generator but found 'cpu'"):
        torch.randn(2, device=device, generator=torch.Generator())
    with pytest.raises(RuntimeError, match=f"Expected a 'cpu' device type for generator but found '{kind}'"):
        torch.randn(2, generator=torch.Generator(device))


def test_labels_that_stayed_on_the_host_are_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        F.cross_entropy(torch.zeros(2, 3, device=device), torch.zeros(2, dtype=torch.long))


def test_mask_that_stayed_on_the_host_is_refused(device: str) -> None:
    x = torch.zeros(1, 1, 2, 2, device=device)

    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(x, x, x, attn_mask=torch.zeros(2, 2))
    with pytest.raises(RuntimeError):
        x.masked_fill(torch.ones(2, 2) > 0, -math.inf)


def test_hidden_state_that_stayed_on_the_host_is_refused(device: str) -> None:
    lstm = nn.LSTM(2, 2).to(device)
    stray = (torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))

    with pytest.raises(RuntimeError):
        lstm(torch.zeros(3, 1, 2, device=device), stray)


def test_value_that_is_captured_by_a_closure_strays(device: str) -> None:
    offset = ones(2)  # `from torch import ones`, as taken before the rehearsal began

    def scaled(x: Tensor) -> Tensor:
        return x * offset

    with pytest.raises(RuntimeError, match="same device"):
        scaled(torch.zeros(2, device=device))


# Module.to


def test_parameters_keep_their_identity(device: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = [id(p) for p in model.parameters()]

    model.to(device)

    assert [id(p) for p in model.parameters()] == before
    assert places(*model.parameters(), *model.buffers()) == {device}


def test_optimizer_built_before_the_movement_goes_on_training(device: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(device)
    before = model.weight.detach().clone()

    model(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()

    assert torch.allclose(model.weight, before - 0.1)


def test_module_moves_and_casts_at_once(device: str) -> None:
    model = nn.Linear(2, 2).to(device, torch.float16)

    assert places(*model.parameters()) == {device}
    assert {p.dtype for p in model.parameters()} == {torch.float16}


def test_module_really_comes_back(device: str) -> None:
    model = nn.Linear(2, 2).to(device).cpu()

    assert places(*model.parameters()) == {"cpu"}
    assert model(torch.zeros(1, 2)).device.type == "cpu"
    with pytest.raises(RuntimeError, match="same device"):
        model(torch.zeros(1, 2, device=device))


def test_apply_that_a_module_overrides_is_called(device: str) -> None:
    class Moves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.zeros(2)

        def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Moves:
            self.table = fn(self.table)
            return super()._apply(fn, recurse)

    assert places(Moves().to(device).table) == {device}


# Results with names, and views


@pytest.mark.parametrize(
    ("compute", "names"),
    [
        (lambda x: x.max(1), ("values", "indices")),
        (lambda x: x.min(1), ("values", "indices")),
        (lambda x: x.sort(), ("values", "indices")),
        (lambda x: x.topk(1), ("values", "indices")),
        (lambda x: x.median(1), ("values", "indices")),
        (lambda x: x.mode(1), ("values", "indices")),
        (lambda x: x.kthvalue(1), ("values", "indices")),
        (lambda x: x.cummax(1), ("values", "indices")),
        (lambda x: x.svd(), ("U", "S", "V")),
        (torch.linalg.svd, ("U", "S", "Vh")),
        (torch.linalg.eigh, ("eigenvalues", "eigenvectors")),
        (torch.linalg.qr, ("Q", "R")),
        (torch.linalg.slogdet, ("sign", "logabsdet")),
        (
            torch.linalg.lstsq_of if hasattr(torch.linalg, "lstsq_of") else (lambda x: torch.linalg.lstsq(x, x)),
            ("solution",),
        ),
        (torch.aminmax, ("min", "max")),
        (torch.frexp, ("mantissa", "exponent")),
    ],
)
def test_named_results_stay_named(compute: Callable[[Tensor], Any], names: tuple[str, ...], device: str) -> None:
    x = torch.eye(3, device=device)

    result = compute(x)

    assert places(*(getattr(result, name) for name in names)) == {device}


def test_tensor_type_is_torch_tensor(device: str) -> None:
    x = torch.zeros(2, device=device)

    assert type(x) is Tensor
    assert type(x + 1) is Tensor
    assert type(nn.Parameter(x)) is nn.Parameter
    assert isinstance(x, Tensor)


def test_views_and_base_share_their_memory(device: str) -> None:
    x = torch.zeros(4, device=device)
    x.view(2, 2)[0].add_(1)
    x[2:].data.mul_(0).add_(5)

    assert x.tolist() == [1, 1, 5, 5]


def test_tensor_without_elements_has_a_device(device: str) -> None:
    assert places(torch.empty(0, device=device), torch.zeros(0, 3).to(device)) == {device}


# What the machine says of itself


DEVICE_IDIOM = [("cuda", "cuda"), ("rocm", "cuda"), ("mps", "mps"), ("xpu", "xpu"), ("cpu", "cpu")]


@pytest.mark.parametrize(("name", "chosen"), DEVICE_IDIOM)
def test_three_way_idiom_picks_the_device(name: str, chosen: str) -> None:
    with rehearse(name):
        device = (
            "cuda" if torch.cuda.is_available()
            else "mps" if torch.backends.mps.is_available()
            else "xpu" if torch.xpu.is_available()
            else "cpu"
        )  # fmt: skip
        accelerator = torch.accelerator.current_accelerator()

    assert device == chosen
    assert accelerator == (None if chosen == "cpu" else torch.device(chosen))


def test_properties_of_a_cuda_device_are_there(cuda: Rehearsal) -> None:
    properties = torch.cuda.get_device_properties(0)

    assert isinstance(torch.cuda.get_device_name(), str)
    assert properties.total_memory > 2**30
    assert torch.cuda.get_device_capability() == (properties.major, properties.minor)
    assert properties.multi_processor_count > 0
    assert torch.cuda.is_bf16_supported()
    assert torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() is None or torch.backends.cudnn.version() > 0


def test_cudnn_flags_may_be_set(cuda: Rehearsal) -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True

    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True):
        assert torch.backends.cudnn.benchmark
        assert torch.backends.cuda.matmul.allow_tf32

    torch.backends.cuda.matmul.allow_tf32 = before


def test_current_device_is_per_thread(cuda: Rehearsal) -> None:
    from concurrent.futures import ThreadPoolExecutor

    torch.cuda.set_device(1)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(torch.cuda.current_device).result()

    assert (torch.cuda.current_device(), other) == (1, 0)
    assert str(torch.zeros(1, device="cuda").device) == "cuda:1"


def test_device_context_is_left(cuda: Rehearsal) -> None:
    with torch.cuda.device(1):
        inside = torch.cuda.current_device(), str(torch.zeros(1).cuda().device)
    with torch.cuda.device_of(torch.zeros(1, device="cuda:1")):
        beside = torch.cuda.current_device()

    assert inside == (1, "cuda:1")
    assert beside == 1
    assert torch.cuda.current_device() == 0


def test_generic_accelerator_interface_works(on: Rehearsal) -> None:
    device = torch.accelerator.current_accelerator()

    assert device is not None
    assert torch.accelerator.device_count() == 1
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()
    assert places(torch.zeros(1, device=device)) == {on.device}


def test_mps_machine_answers_as_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    with rehearse("mps"):
        assert torch.backends.mps.is_available()
        assert torch.backends.mps.is_built()
        assert torch.mps.device_count() == 1
        assert torch.mps.current_allocated_memory() >= 0
        torch.mps.synchronize()
        torch.mps.empty_cache()
        torch.mps.manual_seed(0)
        assert not torch.cuda.is_available()
        assert torch.cuda.device_count() == 0
    assert not torch.backends.mps.is_available()


# Whole programs in small


def test_transformer_trains_and_its_parts_stay_together(device: str) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1), 1).to(device)
    head = nn.Linear(8, 3).to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-2)
    x = torch.randn(4, 5, 8, device=device)
    y = torch.randint(3, (4, 5), device=device)
    losses = []

    for _ in range(8):
        loss = F.cross_entropy(head(model(x)).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())

    assert losses[-1] < losses[0]
    assert places(*(p.grad for p in model.parameters() if p.grad is not None)) == {device}
    assert places(*(s["exp_avg"] for s in optimizer.state.values())) == {device}


def test_model_spread_over_two_devices_trains(pair: tuple[str, str]) -> None:
    first, second = nn.Linear(2, 2).to(pair[0]), nn.Linear(2, 1).to(pair[1])
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()])

    loss = second(first(torch.ones(1, 2, device=pair[0])).relu().to(pair[1])).sum()
    loss.backward()
    nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 1.0)
    optimizer.step()

    assert first.weight.grad is not None
    assert second.weight.grad is not None
    assert (places(first.weight.grad), places(second.weight.grad)) == ({pair[0]}, {pair[1]})


def test_activation_that_was_not_handed_over_is_refused(pair: tuple[str, str]) -> None:
    first, second = nn.Linear(2, 2).to(pair[0]), nn.Linear(2, 1).to(pair[1])

    with pytest.raises(RuntimeError, match="same device"):
        second(first(torch.ones(1, 2, device=pair[0])))


def test_numpy_of_a_loss_is_refused_and_of_its_host_copy_is_not(device: str) -> None:
    loss = torch.ones(3, device=device, requires_grad=True).sum()

    with pytest.raises((TypeError, RuntimeError)):
        np.mean(loss)
    assert loss.detach().cpu().numpy() == 3


def test_traced_module_runs_on_the_device(device: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).to(device)

    # Deprecated, and used. The kind of warning is FutureWarning since 2.14.
    with pytest.warns((DeprecationWarning, FutureWarning), match="torch.jit"):
        traced = torch.jit.trace(model, torch.zeros(1, 2, device=device))

    assert places(traced(torch.zeros(1, 2, device=device))) == {device}
    with pytest.raises(RuntimeError):
        traced(torch.zeros(1, 2))


def test_compiled_module_runs_and_says_that_it_is_eager(device: str) -> None:
    with pytest.warns(UserWarning, match="torch.compile runs eagerly in a rehearsal"):
        model = torch.compile(nn.Linear(2, 2).to(device))

    assert places(model(torch.zeros(1, 2, device=device))) == {device}


def test_deepcopy_of_a_model_is_a_model_on_the_device(device: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device)

    twin = copy.deepcopy(model)

    assert places(*twin.parameters(), *twin.buffers()) == {device}
    assert not {p.data_ptr() for p in twin.parameters()} & {p.data_ptr() for p in model.parameters()}


@pytest.mark.slow
def test_backward_does_not_grow_with_unrelated_parameters() -> None:
    def seconds() -> float:
        x = torch.ones(4, device="cuda", requires_grad=True)
        best = math.inf
        for _ in range(40):
            y = (x * 2).sum()
            start = time.perf_counter()
            y.backward()
            best = min(best, time.perf_counter() - start)
        return best

    with rehearse("cuda"):
        alone = seconds()
        crowd = [nn.Parameter(torch.zeros(1, device="cuda")) for _ in range(2000)]
        crowded = seconds()

    assert len(crowd) == 2000
    assert crowded < 5 * alone + 1e-3


def test_dead_tensors_are_not_kept(device: str) -> None:
    import weakref

    x = torch.zeros(2, device=device)
    died = weakref.ref(x)

    del x
    gc.collect()

    assert died() is None
