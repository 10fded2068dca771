"""Choosing a device: what decides, what is passed over and why, and what the answer can be used for."""

from __future__ import annotations

import copy
import json
import pickle
from types import SimpleNamespace

import pytest
import torch

from wherry import backends
from wherry.backends import Backend
from wherry.errors import (
    BadRank,
    BadSize,
    DeviceAbsent,
    NoSuitableDevice,
    TorchMissing,
    UnknownDevice,
    UnknownDtype,
)
from wherry.pick import Choice, PassedOver, pick
from wherry.units import GIB

GPU = 8 * GIB


# What decides


@pytest.mark.parametrize(
    ("here", "device", "backend"),
    [
        ((), "cpu", "cpu"),
        (("xpu",), "xpu:0", "xpu"),
        (("mps",), "mps:0", "mps"),
        (("cuda",), "cuda:0", "cuda"),
        (("rocm",), "cuda:0", "rocm"),
        (("mps", "xpu"), "mps:0", "mps"),
        (("cuda", "mps", "xpu"), "cuda:0", "cuda"),
    ],
    ids="+".join,
)
def test_best_backend_that_is_here_is_chosen(machine, here: tuple[str, ...], device: str, backend: str) -> None:
    machine(*(machine.present(name, GPU) for name in here))

    choice = pick()

    assert choice == device
    assert choice.backend == backend


def test_argument_wins_over_environment(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("cuda", GPU), machine.present("mps", GPU))
    monkeypatch.setenv("WHERRY_DEVICE", "mps")

    assert pick("cuda") == "cuda:0"
    assert pick("auto") == "cuda:0"
    assert pick() == "mps:0"
    assert pick().because == 'WHERRY_DEVICE is "mps"'


@pytest.mark.parametrize("value", ["", "auto"])
def test_environment_that_says_nothing_is_ignored(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("WHERRY_DEVICE", value)

    assert pick() == "cpu"


@pytest.mark.parametrize("asked", ["cuda", "CUDA", "nvidia", "cuda:0", torch.device("cuda"), torch.device("cuda", 0)])
def test_device_is_understood_in_every_spelling(machine, asked: str | torch.device) -> None:
    machine(machine.present("cuda", GPU))

    assert pick(asked) == "cuda:0"


@pytest.mark.parametrize("asked", ["cuda", "rocm", "amd", "cuda:0"])
def test_rocm_answers_to_its_own_name_and_to_cuda(machine, asked: str) -> None:
    machine(machine.present("rocm", GPU))

    choice = pick(asked)

    assert choice == "cuda:0"
    assert choice.backend == "rocm"


def test_choice_can_be_picked_again(machine) -> None:
    machine(machine.present("cuda", GPU, GPU))

    assert pick(pick("cuda:1")) == "cuda:1"


# Several devices


def test_most_free_memory_decides_among_several_devices(machine) -> None:
    machine(machine.present("cuda", 3 * GIB, 20 * GIB, 9 * GIB))

    choice = pick()

    assert choice == "cuda:1"
    assert choice.because == "of 3 NVIDIA CUDA devices it has the most free memory, 20 GiB"
    assert choice.passed_over == (
        PassedOver("cuda:0", "has 3 GiB of free memory, cuda:1 has more"),
        PassedOver("cuda:2", "has 9 GiB of free memory, cuda:1 has more"),
    )


def test_first_device_is_chosen_when_all_are_alike(machine) -> None:
    machine(machine.present("cuda", GPU, GPU))

    choice = pick()

    assert choice == "cuda:0"
    assert choice.passed_over == (PassedOver("cuda:1", "has as much free memory as cuda:0"),)


def test_device_that_fails_when_asked_does_not_hide_the_others(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = machine.present("cuda", 3 * GIB, 20 * GIB)
    ask = cuda.memory

    def memory(index: int) -> object:
        if index == 1:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nmore")
        return ask(index)

    monkeypatch.setattr(cuda, "memory", memory)
    machine(cuda)

    choice = pick()

    assert choice == "cuda:0"
    assert choice.passed_over == (PassedOver("cuda:1", "CUDA error: uncorrectable ECC error encountered", broken=True),)


def test_memory_is_not_asked_where_it_decides_nothing(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking starts a CUDA context, some hundred MiB of device memory."""
    cuda = machine.present("cuda", GPU)
    monkeypatch.setattr(cuda, "memory", lambda index: pytest.fail("memory was asked"))
    machine(cuda)

    assert pick() == "cuda:0"


def test_memory_is_asked_where_it_decides(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = machine.present("cuda", GPU)
    asked: list[int] = []
    ask = cuda.memory
    monkeypatch.setattr(cuda, "memory", lambda index: (asked.append(index), ask(index))[1])
    machine(cuda)

    pick(memory="1GiB")

    assert asked == [0]


# Launchers


def test_local_rank_chooses_the_device(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("cuda", GPU, 20 * GIB, GPU))
    monkeypatch.setenv("LOCAL_RANK", "2")

    choice = pick()

    assert choice == "cuda:2"
    assert choice.because == "LOCAL_RANK is 2"


def test_local_rank_also_chooses_among_the_devices_asked_for(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("cuda", GPU, GPU))
    monkeypatch.setenv("LOCAL_RANK", "1")

    assert pick("cuda").because == "you asked for it and LOCAL_RANK is 1"
    assert pick("cuda:0") == "cuda:0"


def test_local_rank_beyond_the_devices_is_an_error(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("cuda", GPU, GPU))
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    with pytest.raises(UnknownDevice) as caught:
        pick()

    assert str(caught.value) == (
        '"cuda:3" asks for index 3, but this process sees 2 CUDA devices (cuda:0, cuda:1). '
        'LOCAL_RANK is "3" and CUDA_VISIBLE_DEVICES is "0,1". Start at most 2 processes on this machine.'
    )


def test_process_that_was_shown_one_device_of_its_own_uses_it(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("cuda", GPU))
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")

    choice = pick()

    assert choice == "cuda:0"
    assert choice.because == "LOCAL_RANK is 3 and this process sees one NVIDIA CUDA device"


def test_processes_share_the_only_device_a_mac_can_have(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("mps", GPU))
    monkeypatch.setenv("LOCAL_RANK", "1")

    assert pick() == "mps:0"


def test_rank_means_nothing_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "5")

    assert pick() == "cpu"


def test_slurm_task_chooses_the_device_of_a_step_with_several(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("cuda", 20 * GIB, GPU))
    monkeypatch.setenv("SLURM_LOCALID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")

    assert pick().because == "SLURM_LOCALID is 1"


@pytest.mark.parametrize("tasks", [None, "1"])
def test_slurm_task_alone_takes_the_freest_device(machine, monkeypatch: pytest.MonkeyPatch, tasks: str | None) -> None:
    machine(machine.present("cuda", GPU, 20 * GIB))
    monkeypatch.setenv("SLURM_LOCALID", "0")
    if tasks:
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", tasks)

    assert pick() == "cuda:1"


def test_rank_that_is_no_number_is_refused(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("cuda", GPU, GPU))
    monkeypatch.setenv("LOCAL_RANK", "one")

    with pytest.raises(BadRank, match='LOCAL_RANK is "one"'):
        pick()


# Demands


@pytest.mark.parametrize("dtype", [torch.float64, torch.double, "float64", "double", "torch.float64"])
def test_float64_passes_mps_over(machine, dtype: torch.dtype | str) -> None:
    machine(machine.present("mps", GPU))

    choice = pick(dtype=dtype)

    assert choice == "cpu"
    assert choice.because == "no accelerator here has float64"
    assert PassedOver("mps:0", "cannot hold float64") in choice.passed_over


def test_device_that_lacks_the_dtype_is_passed_over_for_one_of_another_backend(machine) -> None:
    machine(machine.present("mps", GPU), machine.present("xpu", GPU))

    assert pick(dtype=torch.float64) == "xpu:0"


def test_too_little_memory_is_passed_over(machine) -> None:
    machine(machine.present("cuda", 2 * GIB, 5 * GIB))

    choice = pick(memory="4GiB")

    assert choice == "cuda:1"
    assert PassedOver("cuda:0", "has 2 GiB of free memory, less than 4 GiB") in choice.passed_over


def test_unknown_free_memory_is_not_too_little(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = machine.present("cuda", GPU)
    monkeypatch.setattr(cuda, "memory", lambda index: None)
    machine(cuda)

    assert pick(memory="4GiB") == "cuda:0"


def test_demand_that_nothing_meets_is_an_error_with_every_reason(machine) -> None:
    machine(machine.present("cpu", GIB), machine.present("cuda", 2 * GIB))

    with pytest.raises(NoSuitableDevice) as caught:
        pick(memory="4GiB")

    assert caught.value.wanted == ("4 GiB of free memory",)
    assert dict(caught.value.passed_over)["cuda:0"] == "has 2 GiB of free memory, less than 4 GiB"
    assert dict(caught.value.passed_over)["cpu"] == "has 1 GiB of free memory, less than 4 GiB"


def test_demand_that_the_device_asked_for_does_not_meet_is_an_error(machine) -> None:
    machine(machine.present("mps", GPU))

    with pytest.raises(NoSuitableDevice, match="No device here has float64. Passed over: mps:0: cannot hold float64"):
        pick("mps", dtype="float64")


def test_sizes_and_dtypes_are_checked_before_anything_is_asked() -> None:
    with pytest.raises(BadSize):
        pick(memory="lots")
    with pytest.raises(UnknownDtype, match='"flot64" is no dtype of torch. Did you mean "float64"'):
        pick(dtype="flot64")


# Absent and broken


def test_absent_device_is_an_error_with_the_reason(machine) -> None:
    machine(machine.present("mps", GPU))

    with pytest.raises(DeviceAbsent) as caught:
        pick("xpu")

    assert not caught.value.broken
    assert caught.value.reason == f"torch {torch.__version__} is built without XPU"


def test_broken_device_is_told_apart_from_an_absent_one(machine) -> None:
    machine(machine.broken("cuda", "The NVIDIA driver on your system is too old.\nMore."))

    choice = pick()
    with pytest.raises(DeviceAbsent) as caught:
        pick("cuda")

    assert choice == "cpu"
    assert choice.passed_over[0] == PassedOver("cuda", "The NVIDIA driver on your system is too old", broken=True)
    assert caught.value.broken
    assert str(caught.value).startswith('"cuda" is broken: The NVIDIA driver on your system is too old. ')


def test_device_absent_names_the_variable_that_asked(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERRY_DEVICE", "mps")

    with pytest.raises(DeviceAbsent, match=r'\(WHERRY_DEVICE is "mps"\)'):
        pick()


@pytest.mark.parametrize("asked", ["cuds", "cuda:", "cuda:x", "cuda:-1", "", ":0", "cuda:0:1"])
def test_unknown_device_is_refused(asked: str) -> None:
    with pytest.raises(UnknownDevice, match="is no device wherry knows"):
        pick(asked)


def test_unknown_device_names_the_variable_that_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERRY_DEVICE", "cuds")

    with pytest.raises(UnknownDevice) as caught:
        pick()

    assert str(caught.value) == (
        '"cuds" is no device wherry knows (WHERRY_DEVICE is "cuds"). Did you mean "cuda"? '
        "Known are cpu, cuda, rocm, mps, xpu."
    )


def test_index_beyond_the_devices_is_refused_with_what_is_seen(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(machine.present("cuda", GPU, GPU))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    with pytest.raises(UnknownDevice) as caught:
        pick("cuda:3")

    assert str(caught.value) == (
        '"cuda:3" asks for index 3, but this process sees 2 CUDA devices (cuda:0, cuda:1). '
        'CUDA_VISIBLE_DEVICES is "0,1". Use one of those two, or wherry.pick() to choose.'
    )


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "is not installed here"),
        (OSError("libcudart.so.13: cannot open shared object file"), "does not import: libcudart.so.13"),
        (
            ModuleNotFoundError("No module named 'filelock'", name="filelock"),
            "does not import: No module named 'filelock'",
        ),
    ],
)
def test_missing_torch_is_a_sentence(monkeypatch: pytest.MonkeyPatch, failure: Exception, says: str) -> None:
    def import_module(name: str) -> object:
        raise failure

    monkeypatch.setattr("importlib.import_module", import_module)

    with pytest.raises(TorchMissing, match=says):
        pick()


# What a choice can be used for


@pytest.fixture
def choice() -> Choice:
    return pick("cpu")


def test_choice_is_taken_wherever_torch_takes_a_device(choice: Choice) -> None:
    model = torch.nn.Linear(2, 2).to(choice)

    with torch.device(choice):
        made = torch.ones(2)

    for tensor in (torch.zeros(2, device=choice), made.to(choice), torch.tensor([1.0], device=choice), model.weight):
        assert tensor.device == choice
    assert torch.load(_saved(model), map_location=choice).keys() == model.state_dict().keys()
    assert torch.autocast(choice.type, dtype=torch.bfloat16) is not None


def _saved(model: torch.nn.Module) -> object:
    import io

    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    return buffer


def test_choice_equals_the_torch_device_from_both_sides() -> None:
    choice = Choice("cuda:1", backend="cuda", because="it is a test")

    assert choice == torch.device("cuda", 1)
    assert torch.device("cuda", 1) == choice
    assert choice == "cuda:1"
    assert choice != torch.device("cuda", 0)
    assert torch.device("cuda", 0) != choice
    assert choice != "cuda:0"
    assert choice != 1
    assert choice.device == torch.device("cuda", 1)


def test_choice_reads_like_a_device() -> None:
    choice = Choice("cuda:1", backend="rocm", because="it is a test")

    assert (choice.type, choice.index, str(choice), f"{choice}") == ("cuda", 1, "cuda:1", "cuda:1")
    assert repr(choice) == "Choice('cuda:1', because='it is a test')"
    assert {choice: 0}["cuda:1"] == 0


def test_host_has_no_index(choice: Choice) -> None:
    assert choice.index is None


def test_choice_is_frozen(choice: Choice) -> None:
    with pytest.raises(AttributeError, match="frozen"):
        choice.because = "I say so"  # type: ignore[misc]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda choice: pickle.loads(pickle.dumps(choice))])
def test_choice_travels_with_its_reasons(again) -> None:
    choice = pick()

    other = again(choice)

    assert (type(other), str(other), other.to_json()) == (Choice, str(choice), choice.to_json())


def test_choice_explains_itself(machine) -> None:
    machine(
        machine.present("mps", GPU),
        machine.broken("cuda", "driver too old"),
        machine.present("xpu", GPU, holds=["float16"]),
    )

    text = pick(dtype="float64").explain()

    assert text == (
        "cpu, because no accelerator here has float64\n"
        "passed over:\n"
        "  cuda   broken: driver too old\n"
        f"  rocm   torch {torch.__version__} is not built for ROCm\n"
        "  mps:0  cannot hold float64\n"
        "  xpu:0  cannot hold float64"
    )


def test_choice_is_plain_values_as_json(choice: Choice) -> None:
    assert json.loads(json.dumps(choice.to_json())) == {
        "device": "cpu",
        "backend": "cpu",
        "because": "you asked for it",
        "passed_over": [],
    }


# Facts this leans on


def test_torch_device_can_be_neither_subclassed_nor_imitated() -> None:
    """Why a Choice is a string. When this fails, it may become a device."""
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Device", (torch.device,), {})
    with pytest.raises(TypeError):
        torch.zeros(1, device=SimpleNamespace(type="cpu", index=None))  # type: ignore[arg-type]


def test_devices_made_to_measure_are_seen_by_pick(machine) -> None:
    """The fixture replaces what it says it replaces."""
    machine(machine.present("cuda", GPU))

    found: Backend = next(backend for backend in backends.all() if backend.name == "cuda")

    assert found.count() == 1
