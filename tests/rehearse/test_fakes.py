"""FakeTensorMode and what is built on it (DTensor, FSDP2) inside a rehearsal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from wherry.rehearse import rehearse


def test_fake_tensor_stands_for_the_device_and_the_rehearsal_goes_on_after_it() -> None:
    with rehearse("cuda", count=2):
        torch.cuda.set_device(1)
        with FakeTensorMode():
            fake = torch.empty(3, 4, device="cuda")
            product = fake @ torch.empty(4, 5, device="cuda")
            first = torch.empty(2, device="cuda:0")
        real = torch.ones(2, device="cuda")

        assert isinstance(product, FakeTensor)
        assert (str(product.device), product.shape) == ("cuda:1", (3, 5))
        assert str(first.device) == "cuda:0"
        assert str((real * 2).device) == "cuda:1"
        assert not isinstance(real, FakeTensor)


def test_fake_tensors_of_two_devices_do_not_meet() -> None:
    with rehearse("cuda"), FakeTensorMode():
        fake = torch.empty(3, device="cuda")

        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            fake + torch.empty(3)


def test_fake_of_a_tensor_is_where_the_tensor_is(device: str) -> None:
    fake = FakeTensorMode().from_tensor(torch.ones(2, 3, device=device))

    assert (str(fake.device), fake.shape) == (device, (2, 3))
    assert str((fake * 2).device) == device


def test_rehearsal_goes_on_after_an_error_in_a_fake_mode(device: str) -> None:
    with pytest.raises(ZeroDivisionError), FakeTensorMode():
        _ = 1 / 0

    assert str(torch.ones(2, device=device).device) == device


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one, on a virtual device."""
    with rehearse("cuda"):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        yield
        dist.destroy_process_group()


def trained(device: str, *, shard: bool) -> list[Tensor]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    if shard:
        for layer in (model[0], model[2], model):
            fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for step in range(3):
        x = torch.randn(5, 8, generator=torch.Generator().manual_seed(step)).to(device)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = [p.full_tensor() if shard else p for p in model.parameters()]
    assert all(str(w.device).startswith(device) for w in weights)
    return [w.detach().cpu() for w in weights]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch.distributed warns about itself
def test_fully_sharded_model_trains_as_on_the_cpu(alone: None) -> None:
    sharded = trained("cuda", shard=True)

    assert all(torch.equal(a, b) for a, b in zip(sharded, trained("cpu", shard=False), strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_distributed_tensor_is_where_its_parts_are(alone: None) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cuda", (1,))
    x = distribute_tensor(torch.arange(6.0).reshape(3, 2), mesh, [Shard(0)])

    assert str(x.device) == "cuda:0"
    assert str((x @ x.T).to_local().device) == "cuda:0"
    assert (x @ x.T).full_tensor().cpu().tolist() == [[1, 3, 5], [3, 13, 23], [5, 23, 41]]
