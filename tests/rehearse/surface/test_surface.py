"""No name of torch's device surface is left to chance: it works, it is harmless, or it is refused by name.

A name is spelled where it is at home: `torch.cuda.memory_allocated` is `torch.cuda.memory.memory_allocated`. Names that begin
with an underscore are private, and so are modules that do.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.cuda.comm  # loaded late, and looked up by name below

from wherry import CannotRehearse
from wherry.rehearse import rehearse
from wherry.rehearse.impersonate.graphs import REFUSED_METHODS
from wherry.rehearse.impersonate.refusals import REFUSED
from wherry.rehearse.impersonate.verdicts import HARMLESS, WORKS

ROOTS = ("torch.cuda", "torch.mps", "torch.xpu", "torch.accelerator", "torch.backends", "torch.amp")

CLASSES: tuple[str, ...] = (
    "torch.Tensor",
    "torch.UntypedStorage",
    "torch.Stream",
    "torch.Event",
    "torch.Generator",
    "torch.cuda.Stream",
    "torch.cuda.Event",
    "torch.cuda.CUDAGraph",
    "torch.cuda.MemPool",
    "torch.xpu.Stream",
    "torch.xpu.Event",
    "torch.mps.event.Event",
)


def look_up(dotted: str) -> Any:
    """What a dotted name holds."""
    value: Any = torch
    for part in dotted.split(".")[1:]:
        value = getattr(value, part)
    return value


def modules() -> Iterator[ModuleType]:
    """The public modules under the roots that can be imported."""
    for root in ROOTS:
        package = importlib.import_module(root)
        yield package
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), root + "."):
            if any(part.startswith("_") for part in found.name.split(".")):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield importlib.import_module(found.name)


def _is_borrowed(module: ModuleType, name: str, value: object) -> bool:
    """Whether a name that `__all__` does not list came from elsewhere: typing, the standard library, another part of torch."""
    if name == "TYPE_CHECKING":
        return True
    home = getattr(value, "__module__", None)
    if isinstance(home, str):
        return home != module.__name__
    return value in (typing.Any, typing.Optional, typing.Union, typing.Callable) if callable(value) else False


def public_names() -> set[str]:
    """The names of the modules and classes."""
    found: set[str] = set()
    for module in modules():
        inner = getattr(module, "m", module)  # torch.backends.cudnn is an object in the place of its module
        path = inner.__name__
        listed = set(getattr(inner, "__all__", ()))
        names = {name for name in vars(inner) if not name.startswith("_")} | listed
        names |= {name for name in vars(type(module)) if not name.startswith("_")} if inner is not module else set()
        for name in names:
            value = getattr(inner, name, None) if hasattr(inner, name) else vars(type(module)).get(name)
            if inspect.ismodule(value) or (name not in listed and _is_borrowed(inner, name, value)):
                continue
            home = getattr(value, "__module__", None)
            at_home = isinstance(home, str) and home != path and home.startswith(ROOTS) and hasattr(value, "__name__")
            found.add(f"{home}.{name}" if at_home and not home.rpartition(".")[2].startswith("_") else f"{path}.{name}")
    for dotted in CLASSES:
        try:
            cls = look_up(dotted)
        except AttributeError:
            continue
        found |= {f"{dotted}.{name}" for name in dir(cls) if not name.startswith("_")}
    return found


def _spelled(table: dict[str, str]) -> set[str]:
    return {f"{home}.{name}" for home, names in table.items() for name in names.split()}


def _at_home(dotted: str) -> str:
    """The name where it is defined, as `public_names` spells it."""
    try:
        value = look_up(dotted)
    except AttributeError:
        return dotted
    home = getattr(value, "__module__", None)
    public = isinstance(home, str) and home.startswith("torch.") and "._" not in home
    return f"{home}.{dotted.rpartition('.')[2]}" if public and not isinstance(value, property) else dotted


_IPC = "from_ipc_handle ipc_handle"
REFUSED_HERE = (
    set(REFUSED)
    | {_at_home(name) for name in REFUSED}
    | {f"torch.cuda.CUDAGraph.{name}" for name in REFUSED_METHODS}
    | _spelled({"torch.Event": _IPC, "torch.cuda.Event": _IPC, "torch.xpu.Event": _IPC})
)


def _is_operator(name: str) -> bool:
    return name.startswith("torch.Tensor.") and hasattr(torch.ops.aten, name.rpartition(".")[2])


def unclassified(names: set[str]) -> set[str]:
    known = _spelled(WORKS) | _spelled(HARMLESS) | REFUSED_HERE
    return {name for name in names - known if not _is_operator(name)}


def test_every_public_name_is_classified() -> None:
    """A new torch that adds a name fails here: say in impersonate/verdicts.py or refusals.py what a rehearsal does with it."""
    assert unclassified(public_names()) == set()


def test_a_new_name_would_be_noticed() -> None:
    assert unclassified(public_names() | {"torch.cuda.teleport"}) == {"torch.cuda.teleport"}


def test_the_surface_is_seen_whole() -> None:
    """The twin of the above: an enumeration that lost half of the names would notice nothing."""
    names = public_names()

    assert len(names) > 1000
    assert {"torch.cuda.memory.memory_allocated", "torch.backends.cudnn.version", "torch.Tensor.to"} <= names


def test_no_name_has_two_verdicts() -> None:
    works, harmless = _spelled(WORKS), _spelled(HARMLESS)

    assert works & harmless == set()
    assert (works | harmless) & REFUSED_HERE == set()


DEVICE_OF = {"torch.xpu": "xpu", "torch.mps": "mps"}


def _is_here(name: str) -> bool:
    """Whether this torch has a function of that name; methods have a test of their own."""
    try:
        look_up(name)
    except AttributeError:
        return False
    return not name.startswith("torch.UntypedStorage")


@pytest.mark.parametrize("name", sorted(filter(_is_here, REFUSED)))
def test_refused_name_says_that_and_why(name: str) -> None:
    device = next((device for prefix, device in DEVICE_OF.items() if name.startswith(prefix)), "cuda")

    with rehearse(device), pytest.raises(CannotRehearse, match=name.replace(".", r"\.")) as caught:
        look_up(name)()

    assert caught.value.reason == REFUSED[name]


@pytest.mark.parametrize("name", ["torch.cuda.utilization", "torch.cuda.current_blas_handle"])
def test_what_is_refused_is_torchs_own_again_afterwards(name: str) -> None:
    before = look_up(name)

    with rehearse("cuda"):
        assert look_up(name) is not before

    assert look_up(name) is before


def test_refused_name_is_untouched_in_rehearsals_of_other_devices() -> None:
    with rehearse("mps"), pytest.raises(Exception) as caught:  # noqa: PT011 - whatever this torch says
        torch.cuda.utilization()

    assert not isinstance(caught.value, CannotRehearse)


def test_memory_of_a_device_is_not_shared_between_processes() -> None:
    with rehearse("cuda"), pytest.raises(CannotRehearse, match="known to its own process only"):
        torch.ones(1, device="cuda").untyped_storage()._share_cuda_()


def _works_on(prefix: str) -> list[str]:
    return sorted(
        f"{home}.{name}"
        for home, names in WORKS.items()
        if home.startswith(prefix) and home.count(".") <= 2 and not home.rpartition(".")[2][0].isupper()
        for name in names.split()
    )


# Arguments for the functions that need some; all others are called without.
ARGUMENTS: dict[str, str] = {
    "StreamContext": "(None)",
    "can_device_access_peer": "(0, 1)",
    "check_error": "(0)",
    "device": "(1)",
    "device_of": "(torch.ones(1))",
    "get_stream_from_external": "(0x1000)",
    "set_device": "(0)",
    "set_stream": "(None)",
    "stream": "(None)",
    "set_sync_debug_mode": "('default')",
    "set_per_process_memory_fraction": "(1.0)",
    "manual_seed": "(0)",
    "manual_seed_all": "(0)",
    "set_rng_state": "(NAMESPACE.get_rng_state())",
    "set_rng_state_all": "(NAMESPACE.get_rng_state_all())",
    "use_mem_pool": "(NAMESPACE.MemPool())",
    "ExternalStream": "(0x1000)",
    "set_device_index": "(0)",
    "set_device_idx": "(0)",
    "device_index": "(1)",
    "graph": "(GRAPH(), stream=NAMESPACE.Stream())",
    "make_graphed_callables": "(torch.nn.Identity(), (torch.ones(1, device=DEVICE, requires_grad=True),))",
    "broadcast": "(torch.ones(2, device=DEVICE), [0, 1])",
    "broadcast_coalesced": "([torch.ones(2, device=DEVICE)], [0, 1])",
    "gather": "([torch.ones(2, device=DEVICE), torch.ones(2, device=DEVICE + ':1')])",
    "reduce_add": "([torch.ones(2, device=DEVICE), torch.ones(2, device=DEVICE + ':1')])",
    "reduce_add_coalesced": "([[torch.ones(2, device=DEVICE)], [torch.ones(2, device=DEVICE + ':1')]])",
    "scatter": "(torch.ones(2, device=DEVICE), [0, 1])",
}
GENERIC_STREAM = {"torch.accelerator.set_stream": "(torch.Stream())"}
SPARSE = "(torch.tensor([[0], [0]]), torch.tensor([1.0]), (1, 1))"
ALSO: dict[str, str] = {
    "torch.accelerator.set_stream": "(torch.Stream())",
    "torch.cuda.nccl.is_available": "([torch.ones(1, device='cuda')])",
    "torch.backends.mps.is_macos_or_newer": "(14, 0)",
    **{f"torch.cuda.sparse.{name}": SPARSE for name in WORKS["torch.cuda.sparse"].split()},
}
NOT_CALLED = (
    "default_generators",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "GradScaler",
)  # no function, or tested at length
REAL_ONES_FAIL = {
    ("cuda", "torch.accelerator.get_device_capability"),  # "Backend doesn't support getting device capabilities."
    ("rocm", "torch.accelerator.get_device_capability"),
    ("rocm", "torch.cuda.get_gencode_flags"),  # it expects "sm_90" and finds "gfx90a"
}
ALL_NAMES = {
    "cuda": _works_on("torch.cuda") + _works_on("torch.accelerator"),
    "rocm": _works_on("torch.cuda") + _works_on("torch.accelerator"),
    "xpu": _works_on("torch.xpu") + _works_on("torch.accelerator"),
    "mps": _works_on("torch.mps") + _works_on("torch.backends.mps"),
}


def outcome(device: str, name: str) -> str | None:
    """What goes wrong when a name is used, or None."""
    last = name.rpartition(".")[2]
    if last in NOT_CALLED or (device, name) in REAL_ONES_FAIL:
        return None
    try:
        look_up(name)
    except AttributeError:
        return None  # another version of torch has it
    kind = "cuda" if device == "rocm" else device
    namespace = torch.get_device_module(kind)
    graph = getattr(namespace, "CUDAGraph" if kind == "cuda" else "XPUGraph", None)
    scope = {"torch": torch, "NAMESPACE": namespace, "DEVICE": kind, "GRAPH": graph}
    argument = ALSO.get(name) or ARGUMENTS.get(last, "()")
    try:
        if last in ("make_graphed_callables", "graph"):
            namespace.set_stream(namespace.Stream())
        eval(name + argument, scope)
    except Exception as err:
        return f"{name}{argument}: {type(err).__name__}: {err}"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("device", ALL_NAMES)
def test_every_name_that_works_can_be_called(device: str) -> None:
    with rehearse(device, count=1 if device == "mps" else 2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = [said for name in ALL_NAMES[device] if (said := outcome(device, name)) is not None]

    assert len(ALL_NAMES[device]) > 10
    assert wrong == []


def test_a_name_that_does_not_work_would_be_noticed() -> None:
    with rehearse("cuda"):
        assert outcome("cuda", "torch.cuda.utilization") is not None
