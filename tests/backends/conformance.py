"""The same questions to every backend, third parties' included: facts, presence here, and its virtual device.

Absence is an answer. To hold a backend of your own to this, install it and run this file.
"""

from __future__ import annotations

import importlib
import re
import string
from collections.abc import Iterator

import pytest
import torch

from wherry import backends
from wherry.backends import Backend, Maturity, Memory, Presence, State
from wherry.errors import UnknownDevice


@pytest.fixture(params=backends.all(), ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


# What it says of itself


def test_name_is_a_word_one_types(backend: Backend) -> None:
    for name in (backend.name, *backend.aliases):
        assert re.fullmatch(r"[a-z][a-z0-9]*", name)
    assert backend.title


def test_names_and_aliases_belong_to_one_backend(backend: Backend) -> None:
    others = [other for other in backends.all() if other is not backend]

    for name in (backend.name, *backend.aliases):
        assert backends.find(name) is backend
        assert backends.find(f" {name.upper()} ") is backend
        assert not any(name == other.name or name in other.aliases for other in others)


def test_device_type_is_one_torch_knows(backend: Backend) -> None:
    assert torch.device(backend.device_type).type == backend.device_type


def test_namespace_is_a_module_of_torch(backend: Backend) -> None:
    if backend.namespace is not None:
        assert importlib.import_module(backend.namespace)


def test_only_the_host_has_no_priority(backend: Backend) -> None:
    assert (backend.priority == 0) == (backend.device_type == "cpu")


def test_quirks_have_a_version_and_a_link(backend: Backend) -> None:
    for quirk in backend.quirks:
        assert quirk.what
        assert re.fullmatch(r"\d+\.\d+", quirk.since)
        assert quirk.source.startswith("https://")


# What its devices can do


def test_dtypes_are_dtypes(backend: Backend) -> None:
    can = backend.capabilities

    for name in {*can.dtypes, *can.autocast_dtypes}:
        # torch 2.6 lacks some of the newest.
        assert isinstance(getattr(torch, name, torch.float32), torch.dtype)
    assert {"float32", "int64", "bool"} <= can.dtypes
    assert {*can.autocast_dtypes} <= can.dtypes
    assert can.autocast_default in can.autocast_dtypes


def test_dtypes_have_the_name_torch_prints(backend: Backend) -> None:
    """`float64`, never its alias `double`: membership is by name."""
    for name in backend.capabilities.dtypes:
        assert str(getattr(torch, name, f"torch.{name}")) == f"torch.{name}"


def test_can_hold_follows_the_dtypes(backend: Backend) -> None:
    assert backend.can_hold("float32")
    assert not backend.can_hold("no_such_dtype")


def test_fused_optimizers_are_optimizers(backend: Backend) -> None:
    for name in backend.capabilities.fused_optimizers:
        assert "fused" in getattr(torch.optim, name).__init__.__code__.co_varnames


def test_compile_and_distributed_are_named(backend: Backend) -> None:
    assert isinstance(backend.capabilities.compile, Maturity)
    assert isinstance(backend.compiles(), Maturity)
    assert backend.capabilities.distributed


# What it says when something is wrong

OOM_FIELDS = {"tried_nbytes", "index", "tried", "total", "free", "allocated", "reserved", "other", "limit"}


def _raised(backend: Backend) -> Iterator[tuple[str, str]]:
    wording = backend.wording
    yield wording.lazy_init
    yield wording.out_of_memory
    yield from filter(None, (wording.absent_to, wording.absent_alloc))


def test_wording_names_exceptions_that_exist(backend: Backend) -> None:
    for exception, _ in _raised(backend):
        found = getattr(torch, exception, None) or getattr(importlib.import_module("builtins"), exception)
        assert issubclass(found, Exception)


def test_out_of_memory_text_uses_the_documented_fields(backend: Backend) -> None:
    _, text = backend.wording.out_of_memory

    fields = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}

    assert fields <= OOM_FIELDS
    assert fields & {"tried", "tried_nbytes"}


# Whether it is here


def test_probe_answers_with_a_clause(backend: Backend) -> None:
    presence = backend.probe()

    assert isinstance(presence, Presence)
    assert presence.reason
    assert not presence.reason.endswith(".")
    assert "\n" not in presence.reason


def test_probe_and_count_agree(backend: Backend) -> None:
    presence = backend.probe()

    assert presence.count == backend.count()
    assert (presence.state is State.PRESENT) == (presence.count > 0)
    assert len(presence.names) == presence.count


def test_memory_of_what_is_here_is_plausible(backend: Backend) -> None:
    for index in range(backend.count()):
        memory = backend.memory(index)
        assert memory is None or (isinstance(memory, Memory) and 0 <= memory.free <= memory.total)


def test_probe_keeps_the_reason_of_a_failure(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> Presence:
        raise RuntimeError("driver answered 999.\nand more")

    monkeypatch.setattr(backend, "look", look)

    assert backend.probe() == Presence(State.BROKEN, "driver answered 999")


def test_probe_without_torch_says_so(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)

    assert backend.probe() == Presence(State.ABSENT, "torch is not installed")


def test_probe_with_a_torch_that_does_not_import_is_broken(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> object:
        raise OSError("libtorch_cpu.so: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", import_module)

    assert backend.probe() == Presence(
        State.BROKEN, "torch does not import: libtorch_cpu.so: cannot open shared object file"
    )


def test_environment_that_hides_devices_is_told(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.hidden_by() is None
    for name in reversed(backend.visibility):
        monkeypatch.setenv(name, "0,1")

        assert backend.hidden_by() == f'{name} is "0,1"'


# What a rehearsal shows


def test_virtual_device_is_complete(backend: Backend) -> None:
    virtual = backend.virtual
    if virtual is None:
        pytest.skip("it cannot be rehearsed")

    assert virtual.name
    assert virtual.total_memory > 2**30
    assert virtual.max_count >= 1


def test_virtual_constants_are_names_of_torch(backend: Backend) -> None:
    for path in backend.virtual.constants if backend.virtual else ():
        module, _, name = path.rpartition(".")
        assert module.startswith("torch.")
        # Some are newer than the oldest torch we support.
        assert hasattr(importlib.import_module(module), name) or torch.__version__ < "2.13"


# That these questions can be failed


def test_question_about_unknown_names_can_be_failed() -> None:
    with pytest.raises(UnknownDevice):
        backends.find("no such backend")
