"""What widely used libraries do with devices, each in a few lines: loaders of checkpoints, generation, export, launchers.

Found by running transformers, accelerate, peft, Lightning, torchmetrics, timm and PyTorch Geometric on virtual devices.
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from wherry.errors import CannotRehearse
from wherry.rehearse import Rehearsal, rehearse


@pytest.fixture(params=["cuda", "rocm", "mps", "xpu"])
def device(request: pytest.FixtureRequest) -> Any:
    with rehearse(request.param) as rehearsal:
        assert isinstance(rehearsal, Rehearsal)
        yield torch.device(rehearsal.device).type


# A device by its number, as a map from modules to devices holds it


def test_device_of_a_number_is_the_accelerator_of_that_number(device: str) -> None:
    assert torch.device(0) == torch.device(device, 0)
    assert torch.device(3) == torch.device(device, 3)  # not there, which is found out when it is used
    with pytest.raises(RuntimeError, match="Device index must not be negative"):
        torch.device(-1)


def test_device_is_the_type_that_it_was(device: str) -> None:
    here = torch.device(0)

    assert isinstance(here, torch.device)
    assert isinstance(here, str | torch.device)
    assert issubclass(type(here), torch.device)
    assert type(here) == torch.device  # noqa: E721 - as programs compare
    assert type(here) in {torch.device: 1}
    assert torch.device in {type(here): 1}
    assert not isinstance(device, torch.device)
    match here:
        case torch.device(type=kind):
            assert kind == device
        case _:
            pytest.fail("no device")


def test_device_is_copied_and_pickled(device: str) -> None:
    here = torch.device(device)

    assert copy.deepcopy(here) == here
    assert pickle.loads(pickle.dumps(here)) == here
    assert pickle.loads(pickle.dumps(torch.device)) is torch.device


def test_what_is_no_device_is_refused_in_the_words_of_torch(device: str) -> None:
    for value in ("bogus", 1.5, None):
        with pytest.raises((RuntimeError, TypeError)) as rehearsed:
            torch.device(value)  # type: ignore[call-overload]
        with pytest.raises((RuntimeError, TypeError)) as real:
            type(torch.device("cpu"))(value)
        assert str(rehearsed.value) == str(real.value)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated, and used
def test_scripted_code_may_name_devices(device: str) -> None:
    class Sender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.target = torch.device("cpu")

        def forward(self, x):  # without annotations: here they are strings, which TorchScript cannot read
            return x.to(self.target)

    Sender.__annotations__ = {"target": torch.device}

    assert torch.jit.script(Sender())(torch.ones(1)).sum() == 1


def test_type_of_devices_is_put_back() -> None:
    before = torch.device
    with rehearse("cuda"):
        assert torch.device is not before
    assert torch.device is before


# Modules without memory, as checkpoints are loaded into


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([]),
        lambda: torch.tensor([1.0]),
        lambda: torch.as_tensor([1.0]),
        lambda: torch.asarray([1.0]),
        lambda: torch.tensor(torch.ones(1, device="cpu")),
        lambda: torch.as_tensor(torch.ones(1, device="cpu")),
        lambda: torch.asarray(torch.ones(1, device="cpu")),
    ],
    ids=["nothing", "tensor", "as_tensor", "asarray", "tensor_of_one", "as_tensor_of_one", "asarray_of_one"],
)
@pytest.mark.filterwarnings("ignore:To copy construct")
def test_constructor_heeds_a_default_device(device: str, make: Callable[[], Tensor]) -> None:
    with torch.device("meta"):
        assert make().device.type == "meta"
    with torch.device(device):
        assert make().device.type == device
    assert make().device.type == "cpu"


def test_model_without_memory_is_filled_on_the_device(device: str) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        assert torch.tensor([]).device.type == "meta"  # how a loader asks whether it is in such a block
    state = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).state_dict()

    model.load_state_dict({name: value.to(device) for name, value in state.items()}, assign=True)

    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {device}


# Functions by keyword


def test_checked_functions_take_their_first_argument_by_name(device: str) -> None:
    x, index = torch.ones(2, 2, device=device), torch.zeros(2, 2, dtype=torch.long, device=device)

    assert torch.take_along_dim(input=x, indices=index, dim=1).device.type == device
    assert torch.quantile(input=x, q=0.5).device.type == device
    with pytest.raises(RuntimeError):
        torch.take_along_dim(input=x, indices=index.cpu(), dim=1)
    with pytest.raises(RuntimeError):
        torch.take_along_dim(indices=index.cpu(), input=x, dim=1)


def test_checked_functions_complain_of_a_wrong_call_as_torch_does(device: str) -> None:
    with pytest.raises(TypeError) as rehearsed:
        torch.take_along_dim()  # type: ignore[call-arg]

    assert str(rehearsed.value) == 'take_along_dim() missing 2 required positional argument: "input", "indices"'


# Dtypes for which the CPU has no kernel


@pytest.mark.parametrize("name", ["cuda", "rocm"])
def test_histogram_of_integers_as_a_router_of_experts_counts(name: str) -> None:
    with rehearse(name):
        counts = torch.histc(torch.tensor([0, 2, 2, 3], device="cuda"), bins=4, min=0, max=3)

        assert (counts.tolist(), counts.dtype, counts.device.type) == ([1, 0, 2, 1], torch.int64, "cuda")


HALVES: dict[str, Callable[[Tensor], Tensor]] = {
    "avg_pool3d": lambda x: F.avg_pool3d(x, 2),
    "bilinear": lambda x: F.interpolate(x[0], size=2, mode="bilinear", antialias=True),
    "bicubic": lambda x: F.interpolate(x[0], size=2, mode="bicubic", antialias=True),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x[0, 0, 0], torch.tensor([0, 1, 2, 3], device=x.device)),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x[0, 0, 0], torch.zeros_like(x[0, 0, 0]).long()),
}


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_is_computed_where_only_the_device_has_it(name: str, dtype: torch.dtype) -> None:
    values = torch.linspace(-1, 1, 64).view(1, 1, 4, 4, 4).to(dtype)
    wanted_input = values.float().requires_grad_()
    wanted = HALVES[name](wanted_input)
    wanted.sum().backward()

    with rehearse("cuda"):
        x = values.cuda().requires_grad_()
        out = HALVES[name](x)
        out.sum().backward()

        assert (out.dtype, out.device.type, x.grad.dtype, x.grad.device.type) == (dtype, "cuda", dtype, "cuda")
        torch.testing.assert_close(out.cpu(), wanted.to(dtype))
        torch.testing.assert_close(x.grad.cpu(), wanted_input.grad.to(dtype), rtol=2e-2, atol=1e-2)
        with pytest.raises(NotImplementedError):
            HALVES[name](values)  # the host stays as it is


# Ops that take functions


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile", "ignore:torch.compile runs eagerly")
def test_flex_attention_runs_on_the_device(device: str) -> None:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device=device)
    q = torch.ones(1, 2, 16, 8, device=device)

    assert flex_attention(q, q, q, block_mask=mask).device.type == device
    with pytest.raises(ValueError, match="Expected query, key, and value to have the same device type"):
        flex_attention(q, q, q.cpu(), block_mask=mask)


@pytest.mark.filterwarnings("ignore:torch.compile runs eagerly")
def test_branch_on_a_tensor_of_the_device(device: str) -> None:
    x = torch.ones(2, device=device)

    for sign in (1, -1):
        out = torch.cond((sign * x).sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        assert (out.tolist(), out.device.type) == ([1.0 + sign] * 2, device)


# Programs that leave Python


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated, and used
@pytest.mark.parametrize("kind", [str, torch.device], ids=["name", "device"])
def test_saved_script_is_loaded_where_it_is_wanted(device: str, kind: Any) -> None:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))), file)

    file.seek(0)
    there = torch.jit.load(file, map_location=kind(device))
    file.seek(0)
    here = torch.jit.load(file, map_location="cpu")

    assert there(torch.ones(2, 2, device=device)).device.type == device
    assert here(torch.ones(2, 2)).device.type == "cpu"
    with pytest.raises(RuntimeError):
        here(torch.ones(2, 2, device=device))


def test_export_of_a_module_on_the_device_is_refused(device: str) -> None:
    model = nn.Linear(2, 2).to(device)

    with pytest.raises(CannotRehearse, match="torch.export.export"):
        torch.export.export(model, (torch.ones(1, 2, device=device),))


@pytest.mark.slow
def test_export_of_a_module_on_the_host_is_not(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))

    assert program.module()(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_range_is_made_on_the_device(device: str) -> None:
    assert torch.range(0, 3, device=device).device.type == torch.device(device).type
    assert torch.range(0, 3).device.type == "cpu"
