"""What is particular to one backend, with the words real builds answered when they were asked."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from wherry import backends, roster
from wherry.backends import Memory, Presence, State
from wherry.backends.cpu import Cpu
from wherry.errors import UnknownDevice
from wherry.units import GIB

NO_DRIVER = (
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from "
    "http://www.nvidia.com/Download/index.aspx"
)
OLD_DRIVER = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading "
    "and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)


def test_backends_stand_in_the_order_pick_tries_them_after_the_host() -> None:
    assert [backend.name for backend in backends.all()][:5] == ["cpu", "cuda", "rocm", "mps", "xpu"]


def test_typo_is_answered_with_the_closest_name() -> None:
    with pytest.raises(UnknownDevice, match='Did you mean "rocm"'):
        backends.find("rcom")


def test_broken_entry_points_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = roster.Broken("npu", "npu_wherry:BACKEND (npu-wherry 1.0)", "ImportError: no driver")
    monkeypatch.setattr(backends, "_roster", lambda: roster.Roster((Cpu(),), (broken,)))

    assert backends.broken() == (broken,)


# CUDA and ROCm


@pytest.fixture
def cuda_build(monkeypatch: pytest.MonkeyPatch):
    """A torch built for CUDA (or ROCm) whose runtime answers `init` with a given text."""

    def build(says: str | None, *, hip: str | None = None) -> None:
        def init() -> None:
            if says is not None:
                raise RuntimeError(says)

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.cuda, "init", init)
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
        monkeypatch.setattr(torch.version, "hip", hip)

    return build


@pytest.mark.parametrize(
    ("says", "state"),
    [
        (NO_DRIVER, State.ABSENT),
        ("No CUDA GPUs are available", State.ABSENT),
        (OLD_DRIVER, State.BROKEN),
        ("CUDA unknown error - this may be due to an incorrectly set up environment", State.BROKEN),
        ("Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before?", State.BROKEN),
    ],
)
def test_cuda_tells_broken_from_absent_by_what_the_runtime_says(cuda_build, says: str, state: State) -> None:
    cuda_build(says)

    assert backends.find("cuda").probe() == Presence(state, says)


def test_cuda_hidden_by_a_variable_says_so(cuda_build, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_build("No CUDA GPUs are available")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert backends.find("cuda").probe() == Presence(
        State.ABSENT, 'No CUDA GPUs are available (CUDA_VISIBLE_DEVICES is "")'
    )


def test_runtime_that_starts_without_a_device_is_absent(cuda_build) -> None:
    cuda_build(None)

    assert backends.find("cuda").probe() == Presence(State.ABSENT, "its runtime starts, but shows no device")


def test_cpu_build_beside_a_driver_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wherry.backends.cuda._driver_is_here", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    presence = backends.find("cuda").probe()

    assert presence.state is State.ABSENT
    assert presence.reason.endswith("; an NVIDIA driver is here, so a CUDA build of torch would use it")


@pytest.mark.parametrize("hip", [None, "7.1.25421"])
def test_cuda_and_rocm_are_never_both_here(monkeypatch: pytest.MonkeyPatch, hip: str | None) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")

    counts = {name: backends.find(name).count() for name in ("cuda", "rocm")}
    states = {name: backends.find(name).probe().state for name in ("cuda", "rocm")}

    assert counts == ({"cuda": 0, "rocm": 2} if hip else {"cuda": 2, "rocm": 0})
    assert sorted(state.value for state in states.values()) == ["absent", "present"]


def test_rocm_without_a_device_is_absent(cuda_build) -> None:
    cuda_build("No HIP GPUs are available", hip="7.1.25421")

    assert backends.find("rocm").probe() == Presence(State.ABSENT, "No HIP GPUs are available")


# MPS


def mps_build(monkeypatch: pytest.MonkeyPatch, *, available: bool, macos: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: available)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *wanted: macos >= wanted)
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: "Apple M4 Pro")


@pytest.mark.parametrize(
    ("available", "macos", "presence"),
    [
        (True, (15, 0), Presence(State.PRESENT, "Metal", 1, ("Apple M4 Pro",))),
        (False, (13, 6), Presence(State.BROKEN, "MPS needs macOS 14 or newer")),
        (False, (15, 0), Presence(State.ABSENT, "Metal shows no device, as in many virtual machines")),
    ],
)
def test_mps_says_why_it_is_not_here(
    monkeypatch: pytest.MonkeyPatch, available: bool, macos: tuple[int, int], presence: Presence
) -> None:
    mps_build(monkeypatch, available=available, macos=macos)

    assert backends.find("mps").probe() == presence


def test_mps_memory_is_what_this_process_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 16 * GIB)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 6 * GIB)

    assert backends.find("mps").memory(0) == Memory(free=10 * GIB, total=16 * GIB)


def test_mps_holds_no_double_precision() -> None:
    mps = backends.find("mps")

    assert [name for name in ("float64", "complex128", "float8_e4m3fn") if mps.can_hold(name)] == []
    assert mps.can_hold("bfloat16")


# XPU


def xpu_device(monkeypatch: pytest.MonkeyPatch, **properties: object) -> None:
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda index: SimpleNamespace(**properties))


@pytest.mark.parametrize("has_fp64", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_xpu_asks_the_device_whether_it_computes_float64(
    monkeypatch: pytest.MonkeyPatch, dtype: str, has_fp64: bool
) -> None:
    xpu_device(monkeypatch, has_fp64=has_fp64)
    xpu = backends.find("xpu")

    assert xpu.can_hold(dtype, 0) is has_fp64
    assert xpu.can_hold(dtype)
    assert xpu.can_hold("float32", 0)


def test_xpu_that_does_not_tell_its_free_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def mem_get_info(index: int) -> tuple[int, int]:
        raise RuntimeError("The device (Intel(R) Arc(TM) Graphics) doesn't support querying the available free memory.")

    xpu_device(monkeypatch, total_memory=16 * GIB)
    monkeypatch.setattr(torch.xpu, "mem_get_info", mem_get_info)
    monkeypatch.setattr(torch.xpu, "memory_reserved", lambda index: 2 * GIB)

    assert backends.find("xpu").memory(0) == Memory(free=14 * GIB, total=16 * GIB)


# The CPU, which is here


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")  # it is, and it can be made
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # deprecated, and still there
def test_cpu_can_make_every_dtype_it_says_it_holds() -> None:
    dtypes = [getattr(torch, name) for name in backends.find("cpu").capabilities.dtypes if hasattr(torch, name)]

    for dtype in dtypes:
        if dtype in (torch.qint8, torch.quint8, torch.qint32):
            made = torch.quantize_per_tensor(torch.ones(2), scale=1.0, zero_point=0, dtype=dtype)
        else:
            made = torch.empty(2, dtype=dtype)
        assert made.dtype == dtype


def test_cpu_memory_is_not_guessed_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_text(path: object) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr("pathlib.Path.read_text", read_text)

    assert backends.find("cpu").memory(0) is None
    assert len(backends.find("cpu").probe().names) == 1


ASK = """
import json, torch
said = {}
for name in ("cuda", "xpu", "mps"):
    try:
        torch.ones(1).to(name)
    except Exception as err:
        said[name] = [type(err).__name__, str(err)]
print(json.dumps(said))
"""


@pytest.mark.slow
def test_absent_wording_is_what_a_build_without_it_says() -> None:
    """Only what this machine's torch lacks can be asked here, in a process where nothing was rehearsed before."""
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    said = {name: tuple(words) for name, words in json.loads(asked.stdout).items()}

    absent = [name for name in ("cuda", "xpu", "mps") if backends.find(name).probe().reason.find("built without") >= 0]

    assert absent, "this torch is built for everything?"
    for name in absent:
        assert said[name] == backends.find(name).wording.lazy_init


def test_mps_allocation_wording_is_what_a_build_without_it_says() -> None:
    if torch.backends.mps.is_built():
        pytest.skip("this torch is built with MPS")
    kind, text = backends.find("mps").wording.absent_alloc or ("", "")

    with pytest.raises(NotImplementedError) as caught:
        torch.zeros(2, device="mps")

    assert kind == "NotImplementedError"
    assert str(caught.value).startswith(text)
