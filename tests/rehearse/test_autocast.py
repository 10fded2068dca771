"""Mixed precision: autocast of the device has effect, and the scaler scales."""

from __future__ import annotations

import math
import threading

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from wherry.rehearse import Rehearsal, rehearse

DEFAULTS = [("cuda", torch.float16), ("rocm", torch.float16), ("mps", torch.float16), ("xpu", torch.float16)]
"""What torch.get_autocast_dtype answers without being told otherwise."""


@pytest.mark.parametrize(("name", "dtype"), DEFAULTS)
def test_autocast_casts_to_the_devices_default(name: str, dtype: torch.dtype) -> None:
    with rehearse(name) as rehearsal:
        x = torch.ones(2, 2, device=rehearsal.device)
        kind = rehearsal.backend.device_type

        with torch.autocast(kind):
            inside = x @ x
            enabled = torch.is_autocast_enabled(kind)
        outside = x @ x

        assert (inside.dtype, outside.dtype) == (dtype, torch.float32)
        assert str(inside.device) == rehearsal.device
        assert enabled
        assert not torch.is_autocast_enabled(kind)
        assert torch.get_autocast_dtype(kind) == dtype


def test_autocast_casts_to_the_dtype_asked_for(on: Rehearsal) -> None:
    x = torch.ones(2, 2, device=on.device)

    with torch.autocast(on.backend.device_type, dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
        assert nn.functional.linear(x, x).dtype is torch.bfloat16
        assert (x + x).dtype is torch.float32
        assert (x @ x).softmax(-1).dtype is torch.float32


def test_autocast_that_is_off_casts_nothing(on: Rehearsal) -> None:
    x = torch.ones(2, 2, device=on.device)

    with torch.autocast(on.backend.device_type, enabled=False):
        assert (x @ x).dtype is torch.float32


def test_autocast_nests(on: Rehearsal) -> None:
    kind = on.backend.device_type
    x = torch.ones(2, 2, device=on.device)

    with torch.autocast(kind):
        with torch.autocast(kind, enabled=False):
            off = (x @ x).dtype
        with torch.autocast(kind, dtype=torch.bfloat16):
            other = (x @ x).dtype
        again = (x @ x).dtype

    assert (off, other, again) == (torch.float32, torch.bfloat16, torch.float16)


def test_autocast_of_the_device_leaves_the_host_alone(on: Rehearsal) -> None:
    x = torch.ones(2, 2)

    with torch.autocast(on.backend.device_type):
        assert (x @ x).dtype is torch.float32


def test_autocast_of_the_host_leaves_the_device_alone(on: Rehearsal) -> None:
    x = torch.ones(2, 2, device=on.device)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.float32
        assert (x.cpu() @ x.cpu()).dtype is torch.bfloat16


def test_autocast_is_left_on_an_exception(on: Rehearsal) -> None:
    x = torch.ones(2, 2, device=on.device)

    with pytest.raises(ZeroDivisionError), torch.autocast(on.backend.device_type):
        _ = 1 / 0

    assert (x @ x).dtype is torch.float32
    assert not torch.is_autocast_enabled("cpu")


def test_decorated_forward_is_cast(on: Rehearsal) -> None:
    @torch.autocast(on.backend.device_type)
    def forward(x: Tensor) -> Tensor:
        return x @ x

    assert forward(torch.ones(2, 2, device=on.device)).dtype is torch.float16


def test_old_name_of_cudas_autocast_works(cuda: Rehearsal) -> None:
    x = torch.ones(2, 2, device="cuda")

    with pytest.warns(FutureWarning, match=r"torch.cuda.amp.autocast"), torch.cuda.amp.autocast():
        assert (x @ x).dtype is torch.float16


def test_gradients_of_a_cast_model_are_in_full_precision(device: str) -> None:
    model = nn.Linear(2, 2).to(device)

    with torch.autocast(torch.device(device).type):
        loss = model(torch.ones(1, 2, device=device)).float().sum()
    loss.backward()

    assert model.weight.grad is not None
    assert model.weight.grad.dtype is torch.float32
    assert str(model.weight.grad.device) == device


def test_stray_under_autocast_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="same device"), torch.autocast(torch.device(device).type):
        nn.Linear(2, 2).to(device)(torch.ones(1, 2))


def test_function_with_its_own_casts_is_cast(cuda: Rehearsal) -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: object, *gradients: Tensor) -> Tensor:
            return gradients[0]

    x = torch.ones(2, 2, device="cuda", dtype=torch.float16, requires_grad=True)

    with torch.autocast("cuda"):
        assert Product.apply(x).dtype is torch.float32


# The scaler


@pytest.mark.parametrize("name", ["cuda", "rocm", "xpu"])
def test_scaler_scales_steps_and_updates(name: str) -> None:
    with rehearse(name) as rehearsal:
        kind = rehearsal.backend.device_type
        model = nn.Linear(2, 1).to(rehearsal.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(kind, init_scale=1024.0, growth_interval=1)
        before = model.weight.detach().clone()

        with torch.autocast(kind):
            loss = model(torch.ones(4, 2, device=rehearsal.device)).float().mean()
        scaled = scaler.scale(loss)
        scaled.backward()
        scaler.unscale_(optimizer)
        gradient = model.weight.grad
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()

        assert scaler.is_enabled()
        assert str(scaled.device) == rehearsal.device
        assert gradient is not None
        assert torch.allclose(gradient, torch.ones_like(gradient), atol=1e-2)
        assert not torch.equal(model.weight, before)
        assert scaler.get_scale() == 2048.0


def test_scaler_skips_a_step_that_overflowed(cuda: Rehearsal) -> None:
    p = nn.Parameter(torch.ones(2, device="cuda"))
    optimizer = torch.optim.SGD([p], lr=0.1)
    scaler = torch.amp.GradScaler("cuda")

    scaler.scale((p * math.inf).sum()).backward()
    scaler.step(optimizer)
    scaler.update()

    assert p.tolist() == [1, 1]
    assert scaler.get_scale() == 2.0**15


def test_scaler_keeps_its_state(cuda: Rehearsal) -> None:
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(torch.ones((), device="cuda"))
    scaler.load_state_dict({**scaler.state_dict(), "scale": 8.0})

    assert scaler.get_scale() == 8.0


def test_scaler_of_an_absent_device_is_off() -> None:
    with rehearse("mps"), pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = torch.amp.GradScaler("cuda")

    assert not scaler.is_enabled()


def test_autocast_of_an_absent_device_is_off() -> None:
    with rehearse("mps"):
        with pytest.warns(UserWarning, match="CUDA is not available"):
            context = torch.autocast("cuda")
        with context:
            x = torch.ones(2, 2, device="mps")
            assert (x @ x).dtype is torch.float32


def test_bfloat16_is_supported_where_the_backend_says_so(cuda: Rehearsal) -> None:
    assert torch.cuda.is_bf16_supported()
    assert torch.amp.is_autocast_available("cuda")


def test_batch_norm_is_computed_in_float32_on_mps_only(on: Rehearsal) -> None:
    norm = nn.BatchNorm2d(3).to(on.device)
    x = torch.ones(2, 3, 4, 4, device=on.device, dtype=torch.float16)

    with torch.autocast(on.backend.device_type, dtype=torch.float16):
        out = norm(x)

    assert out.dtype is (torch.float32 if on.backend.name == "mps" else torch.float16)


# Each type of device has a switch of its own


def test_switch_of_the_device_is_not_that_of_the_host(on: Rehearsal) -> None:
    kind = on.backend.device_type

    with torch.autocast(kind):
        inside = torch.is_autocast_enabled(kind), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        torch.set_autocast_dtype("cpu", torch.float16)
        asked = torch.get_autocast_dtype("cpu")
    after = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.bfloat16)

    assert inside == (True, False, torch.bfloat16)
    assert asked is after is torch.float16


@pytest.mark.parametrize("order", ["device outside", "host outside"])
def test_two_switches_are_on_at_once(on: Rehearsal, order: str) -> None:
    device = torch.autocast(on.backend.device_type, dtype=torch.float16)
    host = torch.autocast("cpu", dtype=torch.bfloat16)
    first, second = (device, host) if order == "device outside" else (host, device)
    x, y = torch.ones(2, 2), torch.ones(2, 2, device=on.device)

    with first, second:
        assert ((x @ x).dtype, (y @ y).dtype) == (torch.bfloat16, torch.float16)

    assert ((x @ x).dtype, (y @ y).dtype) == (torch.float32, torch.float32)


def test_switch_that_a_program_turns_itself(on: Rehearsal) -> None:
    kind = on.backend.device_type
    x = torch.ones(2, 2, device=on.device)
    before = torch.get_autocast_dtype(kind)

    torch.set_autocast_enabled(kind, True)
    torch.set_autocast_dtype(kind, torch.bfloat16)
    inside = (x @ x).dtype
    torch.set_autocast_enabled(kind, False)
    torch.set_autocast_dtype(kind, before)

    assert (inside, (x @ x).dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_recomputes_in_the_precision_it_computed_in(on: Rehearsal, use_reentrant: bool) -> None:
    seen: list[torch.dtype] = []
    layer = nn.Linear(3, 3).to(on.device)

    def forward(x: Tensor) -> Tensor:
        out = layer(x)
        seen.append(out.dtype)
        return out

    with torch.autocast(on.backend.device_type):
        y = torch.utils.checkpoint.checkpoint(
            forward, torch.ones(2, 3, device=on.device, requires_grad=True), use_reentrant=use_reentrant
        )
    y.sum().backward()

    assert set(seen) == {torch.float16}
    assert layer.weight.grad is not None


def test_rehearsal_inside_autocast_has_the_switches_as_they_are() -> None:
    x = torch.ones(2, 2)

    with torch.autocast("cpu", dtype=torch.float16):
        with rehearse("cuda"):
            y = torch.ones(2, 2, device="cuda")
            inside = ((x @ x).dtype, (y @ y).dtype)
            with torch.autocast("cuda", dtype=torch.bfloat16), rehearse("cpu"):
                innermost = (x @ x).dtype
        after = (x @ x).dtype

    assert inside == (torch.float16, torch.float32)
    assert innermost is after is torch.float16


def test_autocast_that_outlives_the_rehearsal_leaves_the_host_as_it_was() -> None:
    with rehearse("cuda"):
        autocast = torch.autocast("cuda")
        autocast.__enter__()
    autocast.__exit__(None, None, None)

    assert not torch.is_autocast_enabled("cpu")
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_threads_begin_to_use_autocast_side_by_side() -> None:
    wrong: list[object] = []
    together = threading.Barrier(4)

    def use(name: str) -> None:
        try:
            with rehearse(name) as rehearsal:
                x = torch.ones(2, 2, device=rehearsal.device)
                together.wait()
                with torch.autocast(rehearsal.backend.device_type):
                    wrong.extend(found for found in [(x @ x).dtype] if found is not torch.float16)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(name,)) for name in ("cuda", "mps", "xpu", "cuda")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
