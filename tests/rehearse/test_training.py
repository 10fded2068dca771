"""Modules, optimizers, loaders and checkpoints: what a training script does with a device."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from wherry.rehearse import Rehearsal, rehearse


def places(tensors: Iterator[Tensor] | list[Tensor]) -> set[str]:
    return {str(t.device) for t in tensors}


class Net(nn.Module):
    """Parameters, buffers of both kinds, and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 3)
        self.decoder = nn.Linear(3, 3)
        self.decoder.weight = self.encoder.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.norm(self.encoder(x))) * self.scale + self.scratch


MODULE_TO: dict[str, Callable[[nn.Module, str], nn.Module]] = {
    "to text": lambda m, d: m.to(d),
    "to torch.device": lambda m, d: m.to(torch.device(d)),
    "to by keyword": lambda m, d: m.to(device=d),
    "to index": lambda m, d: m.to(0),
    "to tensor": lambda m, d: m.to(torch.zeros(1, device=d)),
    "to tensor by keyword": lambda m, d: m.to(tensor=torch.zeros(1, device=d)),
    "to and dtype": lambda m, d: m.to(d, torch.float16),
    "to and dtype by keyword": lambda m, d: m.to(device=d, dtype=torch.float16),
    "to non_blocking": lambda m, d: m.to(d, non_blocking=True),
    "to memory format": lambda m, d: m.to(d, memory_format=torch.preserve_format),
    "method": lambda m, d: m.to(d) if "mps" in d else getattr(m, d.partition(":")[0])(),
    "method with an index": lambda m, d: m.to(d) if "mps" in d else getattr(m, d.partition(":")[0])(0),
    "to_empty": lambda m, d: m.to_empty(device=d),
    "in a with block": lambda m, d: m.to(d),
    "half after": lambda m, d: m.to(d).half(),
    "apply": lambda m, d: m._apply(lambda t: t.to(d)),
}


@pytest.mark.parametrize("form", MODULE_TO)
def test_module_moves_parameters_and_buffers(form: str, device: str) -> None:
    model = Net()
    before = [id(p) for p in model.parameters()]

    assert MODULE_TO[form](model, device) is model

    assert places([*model.parameters(), *model.buffers()]) == {device}
    assert [id(p) for p in model.parameters()] == before
    assert model.decoder.weight is model.encoder.weight


def test_gradients_move_with_their_parameters(device: str) -> None:
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()

    model.to(device)

    assert model.weight.grad is not None
    assert str(model.weight.grad.device) == device
    assert model.weight.grad.tolist() == [[1, 1]]


def test_module_made_on_the_device_is_there(device: str) -> None:
    with torch.device(device):
        inside = Net()

    assert places([*inside.parameters(), *inside.buffers()]) == {device}
    assert places(nn.Linear(2, 2, device=device).parameters()) == {device}
    assert places(nn.Linear(2, 2).parameters()) == {"cpu"}


def test_module_moves_from_one_device_to_the_other(pair: tuple[str, str]) -> None:
    model = Net().to(pair[0]).to(pair[1])

    assert places([*model.parameters(), *model.buffers()]) == {pair[1]}
    assert model(torch.ones(2, 3, device=pair[1])).device == torch.device(pair[1])
    with pytest.raises(RuntimeError, match="same device"):
        model(torch.ones(2, 3, device=pair[0]))


@pytest.mark.parametrize("swap", [False, True])
def test_module_moves_whatever_the_way_of_exchanging_parameters(swap: bool, device: str) -> None:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        model = Net().to(device)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)

    assert places([*model.parameters(), *model.buffers()]) == {device}
    assert isinstance(model.encoder.weight, nn.Parameter)


@pytest.mark.parametrize("name", ["cuda", "mps", "xpu"])
def test_training_computes_what_the_cpu_computes(name: str) -> None:
    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        x = torch.randn(16, 4).to(device)
        out = []
        for _ in range(3):
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        return out

    plain = losses("cpu")
    with rehearse(name) as rehearsal:
        assert losses(rehearsal.device) == plain


# Optimizers

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "Adagrad": torch.optim.Adagrad,
    "RMSprop": torch.optim.RMSprop,
    "Adadelta": torch.optim.Adadelta,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "Adamax": torch.optim.Adamax,
    "ASGD": torch.optim.ASGD,
    "Rprop": torch.optim.Rprop,
    "LBFGS": lambda p: torch.optim.LBFGS(p, max_iter=2),
    "Adam foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "AdamW one by one": lambda p: torch.optim.AdamW(p, foreach=False),
    "Adam with a tensor as learning rate": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), foreach=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps_on_the_device(name: str, device: str) -> None:
    model = nn.Linear(3, 1).to(device)
    optimizer = OPTIMIZERS[name](model.parameters())
    before = model.weight.detach().clone()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3, device=device)).pow(2).sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)

    assert not torch.equal(model.weight, before)
    state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor) and v.dim()]
    assert places(state) <= {device}


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_fused_optimizer_steps_on_the_device(name: str) -> None:
    with rehearse(name) as rehearsal:
        model = nn.Linear(3, 1).to(rehearsal.device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        model(torch.ones(2, 3, device=rehearsal.device)).sum().backward()
        optimizer.step()

        assert places([s["step"] for s in optimizer.state.values()]) == {rehearsal.device}


def test_step_count_of_adam_stays_on_the_host(device: str) -> None:
    model = nn.Linear(3, 1).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3, device=device)).sum().backward()
    optimizer.step()

    assert places([s["step"] for s in optimizer.state.values()]) == {"cpu"}


def test_optimizer_state_is_loaded_onto_the_device(device: str) -> None:
    def trained(where: str) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Linear(3, 1).to(where)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 3, device=where)).sum().backward()
        optimizer.step()
        return model, optimizer

    _, old = trained("cpu")
    _, new = trained(device)
    new.load_state_dict(old.state_dict())

    assert places([s["exp_avg"] for s in new.state.values()]) == {device}


def test_optimizer_steps_over_two_devices(pair: tuple[str, str]) -> None:
    parameters = [nn.Parameter(torch.ones(2, device=d)) for d in pair]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    for p in parameters:
        p.grad = torch.ones_like(p)

    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()

    assert norm.item() == pytest.approx(2.0)
    assert all((p < 1).all() for p in parameters)


def test_averaged_model_is_on_the_device(device: str) -> None:
    model = nn.Linear(2, 2).to(device)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)

    assert places(averaged.module.parameters()) == {device}


# State


def test_state_dict_names_the_device(device: str) -> None:
    state = Net().to(device).state_dict()

    assert places([v for k, v in state.items()]) == {device}


@pytest.mark.parametrize("assign", [False, True])
def test_state_is_loaded_across_devices(assign: bool, device: str) -> None:
    state = nn.Linear(2, 2).state_dict()
    model = nn.Linear(2, 2).to(device)

    model.load_state_dict(state, assign=assign)

    assert places(model.parameters()) == {"cpu" if assign else device}
    assert torch.equal(model.weight.cpu(), state["weight"])


def test_checkpoint_comes_back_whole(device: str) -> None:
    model = Net().to(device)
    file = io.BytesIO()

    torch.save({"model": model.state_dict(), "step": 3}, file)
    file.seek(0)
    checkpoint = torch.load(file, map_location=device)
    twin = Net().to(device)
    twin.load_state_dict(checkpoint["model"])

    assert checkpoint["step"] == 3
    assert places(list(checkpoint["model"].values())) == {device}
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True))


def test_whole_module_is_saved_and_loaded(device: str) -> None:
    file = io.BytesIO()
    torch.save(nn.Linear(2, 2).to(device), file)
    file.seek(0)

    model = torch.load(file, weights_only=False)

    assert places(model.parameters()) == {device}


def test_parametrization_and_copies_stay_on_the_device(device: str) -> None:
    model = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)).to(device)
    lazy = nn.LazyLinear(2).to(device)

    assert places([model.weight, *model.parameters()]) == {device}
    assert places([lazy(torch.ones(1, 3, device=device)), *lazy.parameters()]) == {device}
    assert places(copy.deepcopy(model).parameters()) == {device}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(4, 2), (2, 4)),
    "Conv1d": (lambda: nn.Conv1d(4, 2, 1), (2, 4, 3)),
    "Conv2d": (lambda: nn.Conv2d(4, 2, 1), (2, 4, 3, 3)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 2, 1), (2, 4, 3, 3)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (2, 4, 3, 3)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (2, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (2, 4)),
    "PReLU": (nn.PReLU, (2, 4)),
    "Dropout": (nn.Dropout, (2, 4)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 4, 4, 4)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(1), (2, 4, 4, 4)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 4, 4, 4)),
    "GRU": (lambda: nn.GRU(4, 2), (3, 2, 4)),
    "LSTM": (lambda: nn.LSTM(4, 2, bidirectional=True), (3, 2, 4)),
    "MultiheadAttention": (Attention, (3, 2, 4)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 2, 8), (3, 2, 4)),
    "Softmax": (lambda: nn.Softmax(-1), (2, 4)),
}


@pytest.mark.parametrize("mode", ["train", "eval", "inference"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_stays_on_the_device_forward_and_backward(name: str, mode: str, device: str) -> None:
    make, shape = LAYERS[name]
    layer = make().to(device).train(mode == "train")
    x = torch.randn(shape, device=device, requires_grad=mode != "inference")

    with torch.inference_mode(mode == "inference"):
        out = layer(x)
        out = out[0] if isinstance(out, tuple) else out

    assert places([out]) == {device}
    if mode != "inference":
        out.sum().backward()
        assert places([x.grad, *(p.grad for p in layer.parameters())]) == {device}  # type: ignore[list-item]


def test_packed_sequences_go_through_a_recurrent_layer(device: str) -> None:
    x = torch.randn(3, 2, 4, device=device)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]))

    out, _ = nn.LSTM(4, 2).to(device)(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(out)

    assert places([packed.data, out.data, padded]) == {device}
    assert places([packed.batch_sizes, lengths]) == {"cpu"}
    assert packed.cpu().data.device.type == "cpu"


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.transpose(1, 2).reshape(2, 12),
        lambda x: x.transpose(1, 2).contiguous(),
        lambda x: x.transpose(1, 2).flatten(1),
        lambda x: x.transpose(0, 1).chunk(3)[1] * 2,
        lambda x: x.permute(2, 0, 1).unfold(0, 2, 1),
        lambda x: F.softmax(x, -1),
        lambda x: torch.stack([x, x]).mean(0),
    ],
)
def test_inference_mode_keeps_the_device(compute: Callable[[Tensor], Tensor], device: str) -> None:
    with torch.inference_mode():
        assert places([compute(torch.randn(2, 3, 4, device=device))]) == {device}


# Loaders


class Numbers(Dataset[tuple[Tensor, int]]):
    """Ten samples, made on the host."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3,), float(index)), index


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_batches_of_workers_are_pinned_and_move(name: str) -> None:
    with rehearse(name) as rehearsal:
        loader = DataLoader(Numbers(), batch_size=4, num_workers=2, pin_memory=True, shuffle=True)
        batches = list(loader)
        moved = [x.to(rehearsal.device, non_blocking=True) for x, _ in batches]

        assert all(x.is_pinned() and y.is_pinned() for x, y in batches)
        assert places(moved) == {rehearsal.device}
        assert sorted(int(i) for _, y in batches for i in y) == list(range(10))


@pytest.mark.slow
def test_batches_of_workers_move_to_a_mac() -> None:
    with rehearse("mps") as rehearsal:
        batches = [x.to("mps") for x, _ in DataLoader(Numbers(), batch_size=4, num_workers=2)]

        assert places(batches) == {rehearsal.device}


def test_batches_are_made_on_the_host(device: str) -> None:
    for x, y in DataLoader(Numbers(), batch_size=5):
        assert places([x, y]) == {"cpu"}
        assert places([x.to(device)]) == {device}


def test_dataset_on_the_device_gives_batches_there(device: str) -> None:
    data = TensorDataset(torch.arange(6.0, device=device))

    assert places([x for (x,) in DataLoader(data, batch_size=2)]) == {device}


def test_shuffling_needs_a_generator_of_the_default_device(device: str) -> None:
    torch.set_default_device(device)
    try:
        with pytest.raises(RuntimeError, match="device type for generator"):
            next(iter(DataLoader(Numbers(), shuffle=True)))
        x, _ = next(iter(DataLoader(Numbers(), shuffle=True, generator=torch.Generator(device))))
    finally:
        torch.set_default_device(None)

    assert places([x]) == {device}


# Several devices


def test_data_parallel_splits_over_the_devices(cuda: Rehearsal) -> None:
    seen: list[str] = []

    class Sees(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(str(x.device))
            return self.linear(x)

    model = nn.DataParallel(Sees().cuda())
    out = model(torch.ones(4, 2, device="cuda"))
    out.sum().backward()

    assert sorted(seen) == ["cuda:0", "cuda:1"]
    assert places([out]) == {"cuda:0"}
    assert places([p.grad for p in model.parameters() if p.grad is not None]) == {"cuda:0"}


def test_data_parallel_wants_its_module_on_the_first_device(cuda: Rehearsal) -> None:
    with pytest.raises(RuntimeError, match=r"module must have its parameters and buffers on device cuda:0"):
        nn.DataParallel(nn.Linear(2, 2))(torch.ones(4, 2))


def test_scatter_and_gather_move(cuda: Rehearsal) -> None:
    parts = torch.nn.parallel.scatter(torch.arange(4.0), [0, 1])

    assert [str(p.device) for p in parts] == ["cuda:0", "cuda:1"]
    assert torch.nn.parallel.gather(parts, 0).tolist() == [0, 1, 2, 3]
