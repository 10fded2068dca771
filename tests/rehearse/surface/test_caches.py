"""No answer about one machine is given about the next."""

from __future__ import annotations

import functools
import inspect
import re
import sys

import pytest
import torch
import torch.testing._internal.common_cuda
import torch.utils._pallas
import torch.utils._triton

from wherry.rehearse import rehearse
from wherry.rehearse.impersonate.caches import REMEMBERED, WHOLE

OF_A_DEVICE = re.compile(r"cuda|mps\b|xpu|accelerator|get_device|device_count|torch\.version\.", re.IGNORECASE)

OTHERWISE = {
    ("torch._subclasses.fake_tensor", "_is_indexed_device_type"): "says which types of device have an index at all",
    ("torch._subclasses.fake_tensor", "init_gpu_context"): "prepares the real device, outside of a rehearsal",
    ("torch._subclasses.fake_impls", "get_fast_op_impls"): "a table of functions",
    ("torch._higher_order_ops.inline_asm_elementwise", "_get_jiterator_fn"): "compiles for the device it is given",
    ("torch.cuda.green_contexts", "_get_driver_version"): "asks the real driver, which no rehearsal replaces",
    ("torch.testing._internal.common_utils", "get_cycles_per_ms"): "measures the real device's clock",
    ("torch.overrides", "get_ignored_functions"): "a table of names",
    ("torch.overrides", "get_testing_overrides"): "a table of names",
    ("torch.overrides", "_get_overridable_functions"): "a table of names",
    ("torch.storage", "_dtype_to_storage_type_map"): "a table of dtypes",
}
"""Caches whose source speaks of devices, and that may be kept."""

COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch")
"""Not used in a rehearsal, which runs compiled functions eagerly; whether they are loaded depends on other tests."""


def cached_functions() -> dict[tuple[str, str], str]:
    """Every `functools.cache` in a loaded module of torch that speaks of devices, with its source."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        if not f"{name}.".startswith("torch.") or name.startswith((*COMPILERS, *WHOLE)):
            continue
        for value in vars(module).values():
            if issubclass(type(value), functools._lru_cache_wrapper) and value.__module__ == name:
                source = inspect.getsource(value.__wrapped__)
                if OF_A_DEVICE.search(source):
                    found[value.__module__, value.__name__] = source
    return found


def test_every_cache_about_devices_is_classified() -> None:
    known = {(module, name) for module, names in REMEMBERED.items() for name in names}

    assert set(cached_functions()) - known - set(OTHERWISE) == set()


@pytest.mark.parametrize("name", ["cuda", "mps", "xpu"])
def test_capability_is_that_of_the_machine_rehearsed(name: str) -> None:
    def ask() -> str:
        try:
            return str(sorted(torch.accelerator.get_device_capability()))
        except RuntimeError as error:
            return str(error)

    with rehearse(name):
        alone = ask()
    with rehearse("xpu" if name != "xpu" else "cuda"):
        other = ask()
        with rehearse(name):
            assert ask() == alone
        assert ask() == other


def test_module_of_the_device_is_that_of_the_machine_rehearsed() -> None:
    before = torch.get_device_module()
    for name in "xpu", "cuda", "mps":
        with rehearse(name):
            assert torch.get_device_module() is getattr(torch, name)
    assert torch.get_device_module() is before
