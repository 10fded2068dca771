"""Entering and leaving: undone exactly, nested, re-entrant, and by whom it is noticed."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import gc
import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from wherry import BadCount, BadSize, UnknownDevice
from wherry.rehearse import Rehearsal, current, rehearse

BACKENDS = ("cpu", "cuda", "rocm", "mps", "xpu")

MODULES = [
    "torch",
    "torch.cuda",
    "torch.cuda.random",
    "torch.cuda.memory",
    "torch.cuda.streams",
    "torch.cuda.amp",
    "torch.mps",
    "torch.mps.event",
    "torch.xpu",
    "torch.xpu.random",
    "torch.xpu.memory",
    "torch.xpu.streams",
    "torch.accelerator",
    "torch.backends",
    "torch.backends.cuda",
    "torch.backends.cudnn",
    "torch.backends.mps",
    "torch.backends.mkldnn",
    "torch.backends.opt_einsum",
    "torch.backends.cpu",
    "torch.version",
    "torch.amp",
    "torch.amp.autocast_mode",
    "torch.amp.grad_scaler",
    "torch.nested",
    "torch.nn",
    "torch.nn.functional",
    "torch.random",
    "torch.storage",
    "torch.serialization",
    "torch.distributed",
    "torch.distributed.distributed_c10d",
    "torch.utils.data",
    "torch._C._nn",
    "torch._tensor",
    "torch._utils",
    "torch.autograd",
    "torch.optim",
    "threading",
    "builtins",
    "sys",
    "os",
    "multiprocessing",
    "subprocess",
]

CLASSES: tuple[type, ...] = (
    torch.Tensor,
    torch.nn.Parameter,
    torch.UntypedStorage,
    torch.TypedStorage,
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.autograd.Function,
    torch.amp.autocast,
    torch.amp.GradScaler,
    torch.Generator,
    torch.utils.data.DataLoader,
    threading.Thread,
)

Surface = dict[tuple[str, str], int]


def surface() -> Surface:
    """Every name of what a rehearsal touches, with the identity of what it holds."""
    owners: list[object] = [importlib.import_module(name) for name in MODULES]
    owners += CLASSES
    names = {(repr(owner)[:80], name): id(value) for owner in owners for name, value in vars(owner).items()}
    finders = {("sys.meta_path", str(position)): id(finder) for position, finder in enumerate(sys.meta_path)}
    variables = {("os.environ", name): hash(value) for name, value in os.environ.items()}
    state = {
        ("default dtype", ""): hash(torch.get_default_dtype()),
        ("default device", ""): hash(torch.get_default_device()),
        ("autocast", "cpu"): torch.is_autocast_enabled("cpu"),
        ("modes", ""): len(_get_current_dispatch_mode_stack()),
        ("current", ""): id(current()),
    }
    return {**names, **finders, **variables, **state}


@pytest.fixture(scope="module", autouse=True)
def _late_imports_are_done() -> None:
    """torch imports parts of itself on first use, which is no doing of a rehearsal."""
    with rehearse("cuda"):
        train("cuda")
        repr(torch.ones(1, device="cuda"))
    gc.collect()


def train(device: str) -> torch.Tensor:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(), torch.nn.Linear(3, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.randn(2, 3, device=device)).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


# Leaving


@pytest.mark.parametrize("name", BACKENDS)
def test_leaving_restores_every_name_of_torch(name: str) -> None:
    before = surface()

    with rehearse(name) as rehearsal:
        train(rehearsal.device)
        inside = surface()

    assert surface() == before
    assert inside != before  # the comparison can fail


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_leaving_by_an_exception_restores_every_name_of_torch(error: type[BaseException]) -> None:
    before = surface()

    with pytest.raises(error), rehearse("mps"):
        raise_after_an_op(error)

    assert surface() == before


def raise_after_an_op(error: type[BaseException]) -> None:
    torch.ones(2, device="mps").sum()
    raise error


def test_leaving_by_a_device_error_restores_every_name_of_torch() -> None:
    before = surface()

    with pytest.raises(RuntimeError, match="same device"), rehearse("cuda"):
        torch.ones(2, device="cuda") + torch.ones(2)

    assert surface() == before


def test_leaving_from_inside_an_op_restores_every_name_of_torch() -> None:
    before = surface()

    class Interrupts(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), rehearse("cuda"):
        Interrupts.apply(torch.ones(2, device="cuda", requires_grad=True)).sum().backward()

    assert surface() == before


def test_two_hundred_rehearsals_leave_nothing_behind() -> None:
    before = surface()

    for _ in range(200):
        with rehearse("cuda"):
            torch.ones(1, device="cuda")

    assert surface() == before


def test_a_finished_rehearsal_is_not_kept_alive() -> None:
    with rehearse("cuda") as rehearsal:
        train("cuda")
    dead = weakref.ref(rehearsal)

    del rehearsal
    gc.collect()

    assert dead() is None


def test_names_set_by_the_program_inside_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = object()

    with rehearse("cuda"):
        monkeypatch.setattr(torch, "_a_name_of_the_program", mine, raising=False)

    assert torch._a_name_of_the_program is mine  # type: ignore[attr-defined]


def test_default_device_set_inside_is_gone_with_its_device() -> None:
    with rehearse("cuda"):
        torch.set_default_device("cuda")
        assert torch.ones(1).is_cuda
        torch.set_default_device(None)

    assert torch.ones(1).device == torch.device("cpu")


# Nesting


@pytest.mark.parametrize("outer", BACKENDS)
@pytest.mark.parametrize("inner", BACKENDS)
def test_inner_rehearsal_is_the_machine_and_the_outer_one_comes_back(outer: str, inner: str) -> None:
    before = surface()

    with rehearse(outer) as first:
        outside = machine()
        with rehearse(inner) as second:
            assert current() is second
            assert torch.ones(2).to(second.device).device == torch.device(second.device)
        assert current() is first
        assert machine() == outside
        assert torch.ones(2).to(first.device).device == torch.device(first.device)

    assert current() is None
    assert surface() == before


def machine() -> dict[str, object]:
    """What a program asks to find its device."""
    return {
        "cuda": (torch.cuda.is_available(), torch.cuda.device_count(), torch.version.hip, torch.version.cuda),
        "mps": (torch.backends.mps.is_available(), torch.backends.mps.is_built()),
        "xpu": (torch.xpu.is_available(), torch.xpu.device_count()),
        "accelerator": (torch.accelerator.is_available(), torch.accelerator.current_accelerator()),
    }


@pytest.mark.parametrize(
    ("name", "available"),
    [
        ("cpu", (False, False, False, False)),
        ("cuda", (True, False, False, True)),
        ("rocm", (True, False, False, True)),
        ("mps", (False, True, False, True)),
        ("xpu", (False, False, True, True)),
    ],
)
def test_machine_has_exactly_the_rehearsed_device(name: str, available: tuple[bool, ...]) -> None:
    with rehearse(name):
        found = (
            torch.cuda.is_available(),
            torch.backends.mps.is_available(),
            torch.xpu.is_available(),
            torch.accelerator.is_available(),
        )

    assert found == available


def test_rocm_says_hip_and_cuda_does_not() -> None:
    with rehearse("rocm"):
        rocm = (torch.version.hip is not None, torch.version.cuda is None)
    with rehearse("cuda"):
        nvidia = (torch.version.hip is None, torch.version.cuda is not None)

    assert rocm == nvidia == (True, True)


def test_same_rehearsal_is_entered_again() -> None:
    before = surface()
    rehearsal = rehearse("cuda")

    with rehearsal, rehearsal:
        held = torch.ones(1, device="cuda")
        assert current() is rehearsal
    with rehearsal:
        assert (held + 1).is_cuda

    assert surface() == before


def test_generators_left_out_of_order_leave_nothing_behind() -> None:
    before = surface()
    first, second = suspended("cuda"), suspended("mps")
    next(first)
    next(second)

    first.close()
    between = torch.ones(1, device="mps").device
    second.close()

    assert between == torch.device("mps:0")
    assert surface() == before


def suspended(name: str) -> Iterator[torch.Tensor]:
    with rehearse(name) as rehearsal:
        while True:
            yield torch.ones(1, device=rehearsal.device)


def test_closing_a_suspended_generator_ends_its_rehearsal() -> None:
    before = surface()
    generator = suspended("xpu")

    assert next(generator).is_xpu
    generator.close()

    assert surface() == before


def test_generator_made_inside_goes_on_outside() -> None:
    def squares() -> Iterator[torch.Tensor]:
        for i in range(3):
            yield torch.tensor(i) ** 2

    with rehearse("cuda"):
        generator = squares()
        first = next(generator)

    assert [first.item(), *(x.item() for x in generator)] == [0, 1, 4]


def test_coroutine_awaited_inside_sees_the_device() -> None:
    async def load() -> torch.Tensor:
        await asyncio.sleep(0)
        return torch.ones(2).cuda()

    with rehearse("cuda"):
        assert asyncio.run(load()).is_cuda


def test_overlapping_tasks_leave_nothing_behind() -> None:
    before = surface()

    async def task(name: str, turns: int) -> None:
        with rehearse(name):
            for _ in range(turns):
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(task("cuda", 1), task("mps", 3))

    asyncio.run(both())

    assert surface() == before


# Decorator


def test_decorated_function_runs_in_the_rehearsal_each_time() -> None:
    before = surface()

    @rehearse("mps")
    def where() -> torch.device:
        return torch.ones(1, device="mps").device

    assert [where(), where()] == [torch.device("mps:0")] * 2
    assert where.__name__ == "where"
    assert surface() == before


def test_decorated_function_may_recurse() -> None:
    @rehearse("cuda")
    def count(n: int) -> int:
        return int(torch.ones(1, device="cuda").item()) + (count(n - 1) if n else 0)

    assert count(4) == 5
    assert current() is None


def test_decorated_function_runs_in_many_threads_at_once() -> None:
    before = surface()
    meeting = threading.Barrier(4)

    @rehearse("cuda")
    def where(_: int) -> tuple[str, bool]:
        meeting.wait(timeout=20)
        device = str(torch.ones(1, device="cuda").device)
        meeting.wait(timeout=20)
        return device, current() is not None

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(where, range(4)))

    assert found == [("cuda:0", True)] * 4
    assert surface() == before


def test_thread_that_leaves_a_shared_rehearsal_leaves_only_its_own_entry() -> None:
    shared, other = rehearse("cuda"), rehearse("mps")
    entered, left = threading.Event(), threading.Event()
    found: list[Rehearsal | None] = []

    def second() -> None:
        with other:
            with shared:
                entered.set()
                left.wait(timeout=20)
                found.append(current())
            found.append(current())

    thread = threading.Thread(target=second)
    with shared:
        pass
    shared.__enter__()
    outside = threading.Thread.start
    outside(thread)
    entered.wait(timeout=20)
    shared.__exit__(None, None, None)
    here = current()
    left.set()
    thread.join()

    assert here is None
    assert found[-2:] == [shared, other]


# Threads


def in_thread(work: Callable[[], object]) -> object:
    """The result of a function that a new thread runs."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_thread_started_inside_takes_part() -> None:
    with rehearse("cuda") as rehearsal:
        where = in_thread(lambda: (torch.ones(1, device="cuda").device, current()))

    assert where == (torch.device("cuda:0"), rehearsal)


def test_thread_started_by_a_thread_started_inside_takes_part() -> None:
    with rehearse("cuda") as rehearsal:
        assert in_thread(lambda: in_thread(current)) is rehearsal


def test_pool_made_inside_takes_part() -> None:
    with rehearse("xpu"), ThreadPoolExecutor(2) as pool:
        where = list(pool.map(lambda n: torch.ones(n, device="xpu").device, range(4)))

    assert where == [torch.device("xpu:0")] * 4


def test_thread_that_outlives_the_rehearsal_ends_well() -> None:
    go = threading.Event()
    found: list[object] = []

    def late() -> None:
        go.wait(timeout=20)
        try:
            found.append(str(torch.ones(1, device="cuda").device))
        except BaseException as error:
            found.append(error)

    with rehearse("cuda"):
        thread = threading.Thread(target=late)
        thread.start()
    go.set()
    thread.join()

    assert found == ["cuda:0"]


def test_thread_started_outside_notices_nothing() -> None:
    enter, done = threading.Event(), threading.Event()
    found: list[object] = []

    def bystander() -> None:
        enter.wait(timeout=20)
        x = torch.ones(2)
        found.extend((x.device.type, x.is_cpu, torch.cuda.is_available(), current(), torch.cuda.device_count()))
        found.append(isinstance(torch.Generator(), torch.Generator))
        found.append(type(x.numpy()).__name__)
        with contextlib.suppress(RuntimeError, AssertionError):
            found.append(torch.ones(1, device="cuda"))
        done.set()

    thread = threading.Thread(target=bystander)
    thread.start()
    with rehearse("cuda"):
        enter.set()
        done.wait(timeout=20)
    thread.join()

    assert found == ["cpu", True, False, None, 0, True, "ndarray"]


def test_threads_rehearse_different_devices_at_once() -> None:
    meeting = threading.Barrier(4)
    before = surface()

    def machine_of(name: str) -> tuple[str, bool, bool, bool]:
        with rehearse(name) as rehearsal:
            meeting.wait(timeout=20)
            where = str((torch.ones(2).to(rehearsal.device) * 2).device)
            seen = (torch.cuda.is_available(), torch.backends.mps.is_available(), torch.xpu.is_available())
            meeting.wait(timeout=20)
        return (where, *seen)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(machine_of, ["cuda", "mps", "xpu", "cpu"]))

    assert found == [
        ("cuda:0", True, False, False),
        ("mps:0", False, True, False),
        ("xpu:0", False, False, True),
        ("cpu", False, False, False),
    ]
    assert surface() == before


def test_timer_started_inside_takes_part() -> None:
    found: list[torch.device] = []

    with rehearse("cuda"):
        timer = threading.Timer(0, lambda: found.append(torch.ones(1, device="cuda").device))
        timer.start()
        timer.join()

    assert found == [torch.device("cuda:0")]


# Tensors that are left over


def test_left_over_tensor_is_an_ordinary_cpu_tensor() -> None:
    with rehearse("cuda"):
        x = torch.arange(3.0, device="cuda")
        model = torch.nn.Linear(3, 1).cuda()

    assert x.device == torch.device("cpu")
    assert (x + torch.ones(3)).tolist() == [1, 2, 3]
    assert model(x).shape == (1,)
    assert x.numpy().sum() == 3
    assert repr(x) == "tensor([0., 1., 2.])"


def test_left_over_tensor_is_back_on_its_device_in_the_next_rehearsal() -> None:
    with rehearse("cuda"):
        x = torch.arange(3.0, device="cuda")

    with rehearse("cuda"):
        assert x.is_cuda
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)


def test_left_over_tensor_is_trained_outside() -> None:
    with rehearse("cuda"):
        model = torch.nn.Linear(3, 1).cuda()
        loss = model(torch.ones(2, 3, device="cuda")).sum()

    loss.backward()

    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[2, 2, 2]]


def test_movement_made_inside_is_differentiated_outside() -> None:
    with rehearse("cuda"):
        x = torch.ones(3, requires_grad=True)
        y = (x.cuda() * 2).sum()

    y.backward()

    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


# Bad input


@pytest.mark.parametrize("name", ["cudda", "gpu0", "", "meta", "mps1"])
def test_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(UnknownDevice):
        rehearse(name)


def test_unknown_device_says_what_was_meant() -> None:
    with pytest.raises(UnknownDevice, match='Did you mean "cuda"'):
        rehearse("cudda")


@pytest.mark.parametrize(
    ("name", "count"), [("cuda", 0), ("cuda", -1), ("cuda", True), ("cuda", 1.5), ("mps", 2), ("cpu", 2), ("cuda:2", 2)]
)
def test_number_of_devices_that_cannot_be_is_refused(name: str, count: int) -> None:
    with pytest.raises(BadCount):
        rehearse(name, count=count)


@pytest.mark.parametrize("index", ["x", "-1", "1.5", "", "0x1", "²"])
def test_index_that_is_no_number_is_refused(index: str) -> None:
    with pytest.raises(UnknownDevice):
        rehearse(f"cuda:{index}")


@pytest.mark.parametrize("memory", ["lots", "", "-1GiB", "8 elephants", -1])
def test_size_that_is_none_is_refused(memory: str | int) -> None:
    with pytest.raises(BadSize):
        rehearse("cuda", memory=memory)


@pytest.mark.parametrize("name", ["cudda", "cuda"])
def test_refusal_changes_nothing(name: str) -> None:
    before = surface()

    with pytest.raises((UnknownDevice, BadCount)):
        rehearse(name, count=0)

    assert surface() == before


def test_index_makes_that_many_devices_and_is_the_one_to_use() -> None:
    with rehearse("cuda:1") as rehearsal:
        assert (rehearsal.device, rehearsal.count, torch.cuda.device_count()) == ("cuda:1", 2, 2)


def test_torch_device_names_a_rehearsal() -> None:
    assert rehearse(torch.device("cuda", 1)).device == "cuda:1"


def test_builtins_of_python_are_left_alone() -> None:
    before = dict(vars(builtins))

    with rehearse("cuda"):
        assert {k: v for k, v in vars(builtins).items() if k != "_"} == {k: v for k, v in before.items() if k != "_"}


# Statistics


def test_statistics_count_ops_and_bytes_each_way() -> None:
    with rehearse("cuda", count=2) as rehearsal:
        x = torch.zeros(256, dtype=torch.float32)
        y = x.to("cuda:0")
        z = y.to("cuda:1")
        z.cpu()
        seen = rehearsal.statistics()

    assert (seen.h2d_nbytes, seen.d2d_nbytes, seen.d2h_nbytes) == (1024, 1024, 1024)
    assert seen.ops >= 4


def test_statistics_of_nothing_are_zero() -> None:
    with rehearse("cuda") as rehearsal:
        pass

    assert rehearsal.statistics() == type(rehearsal.statistics())(0, 0, 0, 0)


def test_statistics_count_every_thread() -> None:
    with rehearse("cuda") as rehearsal:
        in_thread(lambda: torch.zeros(256).cuda())

    assert rehearsal.statistics().h2d_nbytes == 1024


@pytest.mark.parametrize("ask", [lambda x: x.item(), lambda x: x.tolist(), float, bool, int])
def test_statistics_count_a_value_that_is_read(ask: Callable[[torch.Tensor], object]) -> None:
    with rehearse("cuda") as rehearsal:
        ask(torch.ones((), device="cuda"))

    assert rehearsal.statistics().d2h_nbytes == 4


def test_copy_into_the_device_counts_its_bytes() -> None:
    with rehearse("cuda") as rehearsal:
        torch.empty(256, device="cuda").copy_(torch.zeros(256))

    assert rehearsal.statistics().h2d_nbytes == 1024
