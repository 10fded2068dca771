"""Captured graphs: a replay computes anew from what its static inputs hold, and waiting spoils a capture."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from wherry import CannotRehearse
from wherry.rehearse import rehearse

AcceleratorError = getattr(torch, "AcceleratorError", RuntimeError)


@pytest.fixture(autouse=True)
def _on() -> Iterator[None]:
    with rehearse("cuda"):
        yield


def captured(body: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def test_replay_computes_from_the_static_input() -> None:
    x, results = torch.zeros(3, device="cuda"), []

    graph = captured(lambda: results.append((x * 2 + 1).sum(0, keepdim=True)))
    x.copy_(torch.tensor([1.0, 2.0, 3.0]))
    before = results[0].clone()
    graph.replay()

    assert (before.item(), results[0].item()) == (3.0, 15.0)
    assert results[0].device == torch.device("cuda", 0)


def test_work_on_the_host_is_not_replayed() -> None:
    host, x = torch.zeros(1), torch.zeros(1, device="cuda")

    graph = captured(lambda: (host.add_(1), x.add_(1)))
    graph.replay()
    graph.replay()

    assert (host.item(), x.item()) == (1.0, 3.0)


def test_whole_training_step_replayed_gives_the_weights_of_eager_steps() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, twin))
    batch, target = torch.randn(5, 3, device="cuda"), torch.randn(5, 1, device="cuda")

    def step(m: nn.Module, o: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
        o.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(m(x), y)
        loss.backward()
        o.step()
        return loss

    losses = []
    for m, o in ((model, optimizer), (twin, other)):
        step(m, o, batch, target)  # warm-up
    graph = captured(lambda: losses.append(step(model, optimizer, batch, target)))
    step(twin, other, batch, target)

    for _ in range(4):
        x, y = torch.randn(5, 3), torch.randn(5, 1)
        batch.copy_(x)
        target.copy_(y)
        graph.replay()
        assert losses[0].item() == step(twin, other, x.cuda(), y.cuda()).item()
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


def test_graphed_module_gives_what_the_module_gives() -> None:
    module = nn.Linear(3, 3).cuda()
    weight, bias = module.weight, module.bias
    graphed = torch.cuda.make_graphed_callables(module, (torch.randn(2, 3, device="cuda"),))

    x = torch.randn(2, 3, device="cuda", requires_grad=True)
    out = graphed(x)
    out.sum().backward()

    assert torch.allclose(out, x @ weight.T + bias)
    assert weight.grad is not None


WAITS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "to the host": lambda x: x.cpu(),
    "from pageable memory": lambda x: torch.ones(3).cuda(),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "stream": lambda x: torch.cuda.current_stream().synchronize(),
    "nonzero": lambda x: x.nonzero(),
}


@pytest.mark.parametrize("name", WAITS)
def test_waiting_spoils_the_capture(name: str) -> None:
    x = torch.ones(3, device="cuda")

    with pytest.raises(AcceleratorError, match="operation failed due to a previous error during capture") as caught:
        captured(lambda: WAITS[name](x))

    assert "operation not permitted when stream is capturing" in str(caught.value.__context__)
    assert not torch.cuda.is_current_stream_capturing()
    torch.cuda.synchronize()


def test_copy_from_pinned_memory_that_does_not_wait_is_captured() -> None:
    pinned, x = torch.ones(3).pin_memory(), torch.zeros(3, device="cuda")

    graph = captured(lambda: x.copy_(pinned, non_blocking=True))
    pinned.fill_(5)
    graph.replay()

    assert x.tolist() == [5.0, 5.0, 5.0]


def test_a_capture_says_that_it_is_one() -> None:
    seen = []

    captured(lambda: seen.append(torch.cuda.is_current_stream_capturing()))

    assert seen == [True]


MISUSES: dict[str, tuple[Callable[[torch.cuda.CUDAGraph], object], str]] = {
    "replay": (lambda fresh: fresh.replay(), "Called CUDAGraph::replay without a preceding successful capture."),
    "default stream": (lambda fresh: fresh.capture_begin(), "CUDA graphs must be captured on a non-default stream."),
    "twice": (lambda fresh: captured(lambda: None).capture_begin(), "already owns a captured graph"),
    "reset": (lambda fresh: [(g.reset(), g.replay()) for g in [captured(lambda: None)]], "Called CUDAGraph::replay"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_refused_in_the_real_words(name: str) -> None:
    misuse, text = MISUSES[name]

    with pytest.raises(RuntimeError, match=text):
        misuse(torch.cuda.CUDAGraph())


def test_reaching_into_the_driver_is_refused_by_name() -> None:
    graph = torch.cuda.CUDAGraph()

    with pytest.raises(CannotRehearse, match=r"CUDAGraph\.raw_cuda_graph"):
        graph.raw_cuda_graph()
    assert not hasattr(graph, "no_such_method")


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph is from 2.12")
@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_graph_of_whatever_accelerator(device: str) -> None:
    with rehearse(device):
        x = torch.ones(2, device=device)
        graph = torch.accelerator.Graph()

        with torch.Stream(device), graph:
            y = x * 3
        x.fill_(2)
        graph.replay()

        assert y.tolist() == [6.0, 6.0]
