"""The exception tree: what one would catch, what the texts say, and that they arrive whole from another process."""

from __future__ import annotations

import inspect
import pickle

import pytest

from wherry import errors
from wherry.errors import (
    BadCheckpoint,
    BadCount,
    BadOption,
    BadRank,
    BadSize,
    BadVariable,
    CannotRehearse,
    CheckpointMissing,
    DeviceAbsent,
    MissingExtra,
    NoSuitableDevice,
    ScriptError,
    ScriptMissing,
    StrayTensors,
    TorchMissing,
    Unconvertible,
    UnknownDevice,
    UnknownDtype,
    UnknownOperator,
    UnknownProfile,
    UnmovableLeaf,
    WherryError,
)

EXAMPLES = [
    (
        UnknownDevice("cuds", ["cpu", "cuda", "mps"]),
        ValueError,
        '"cuds" is no device wherry knows. Did you mean "cuda"? Known are cpu, cuda, mps.',
    ),
    (
        UnknownDevice("toaster", ["cpu", "cuda"]),
        ValueError,
        '"toaster" is no device wherry knows. Known are cpu, cuda.',
    ),
    (
        UnknownDevice("cuda:3", ["cuda:0", "cuda:1"], title="CUDA", environment='CUDA_VISIBLE_DEVICES is "0,1"'),
        ValueError,
        '"cuda:3" asks for index 3, but this process sees 2 CUDA devices (cuda:0, cuda:1). '
        'CUDA_VISIBLE_DEVICES is "0,1". Use one of those two, or wherry.pick() to choose.',
    ),
    (
        UnknownDevice("mps:1", ["mps:0"], title="MPS"),
        ValueError,
        '"mps:1" asks for index 1, but this process sees 1 MPS device (mps:0). '
        "Use that one, or wherry.pick() to choose.",
    ),
    (
        BadOption("strays", "moved", ["warn", "move"]),
        ValueError,
        'strays=\'moved\' means nothing. Did you mean "move"? It takes "warn", "move".',
    ),
    (
        UnmovableLeaf("batch['labels'][2]", "cuda:0", reason="ValueError: no."),
        RuntimeError,
        "batch['labels'][2] cannot move to cuda:0: ValueError: no. Nothing has moved.",
    ),
    (
        UnmovableLeaf("x", "mps:0", reason="it is float64", fix="Convert it."),
        RuntimeError,
        "x cannot move to mps:0: it is float64. Nothing has moved. Convert it.",
    ),
    (
        StrayTensors([("model.mask", "cpu", "Register it.")], device="cuda:0"),
        RuntimeError,
        """1 tensor that is no parameter or buffer stays behind when the module moves to cuda:0:
  model.mask (on cpu)
    Register it.
To move them this time, use move(..., strays="move").""",
    ),
    (
        StrayTensors([(f"m.a[{i}]", "cpu", "Fix.") for i in range(5)], device="meta"),
        RuntimeError,
        """5 tensors that are no parameters or buffers stay behind when the module moves to meta:
  m.a[0] (on cpu)
    Fix.
  m.a[1] (on cpu)
    Fix.
  m.a[2] (on cpu)
    Fix.
  and m.a[3], m.a[4]
To move them this time, use move(..., strays="move").""",
    ),
    (
        BadCount(0, backend="cuda", most=16),
        ValueError,
        "0 is no number of cuda devices. Use a whole number from 1 to 16.",
    ),
    (
        BadCount(2, backend="mps", most=1),
        ValueError,
        "2 mps devices cannot be had: torch knows one mps device. Use count=1.",
    ),
    (
        BadCheckpoint("model.pt", "it is empty"),
        ValueError,
        "model.pt: it is empty.",
    ),
    (
        BadCheckpoint("model.pt", "it is a damaged zip archive", fix="Fetch it again."),
        ValueError,
        "model.pt: it is a damaged zip archive. Fetch it again.",
    ),
    (
        CheckpointMissing("modle.pt", near=["model.pt"]),
        FileNotFoundError,
        "modle.pt: there is no such file. Did you mean model.pt?",
    ),
    (
        BadSize("lots", "it does not start with a number"),
        ValueError,
        '"lots" is no size: it does not start with a number. '
        'Write a number and a unit, such as "512MiB", "6GiB" (2**30 bytes each) or "8GB" (10**9 bytes each).',
    ),
    (
        BadVariable("PYTORCH_ENABLE_MPS_FALLBACK", "yes", "Apple MPS"),
        ValueError,
        'PYTORCH_ENABLE_MPS_FALLBACK is "yes", which is no number. On Apple MPS, torch reads one when it is imported, and the '
        "process ends there. Set it to 1 or 0, or unset it.",
    ),
    (
        UnknownOperator("tkae", ["take"]),
        ValueError,
        'no operator is called "tkae". Did you mean take? Wildcards find more: "*tkae*".',
    ),
    (
        BadRank("LOCAL_RANK", "one"),
        ValueError,
        'LOCAL_RANK is "one", which is no rank. torchrun sets it to 0, 1, ...; '
        "unset it if no launcher started this process.",
    ),
    (
        UnknownProfile("rtx490", "cuda", ["rtx4090", "t4"]),
        ValueError,
        '"rtx490" is no profile of cuda. Did you mean "rtx4090"? Known are rtx4090, t4.',
    ),
    (UnknownProfile("m1", "cpu", []), ValueError, '"m1" is no profile of cpu, which has none. Leave the profile out.'),
    (UnknownDtype("flot64", ["float64", "int8"]), ValueError, '"flot64" is no dtype of torch. Did you mean "float64"?'),
    (
        DeviceAbsent("cuda", "torch 2.13.0+cpu is built without CUDA"),
        RuntimeError,
        '"cuda" is not here: torch 2.13.0+cpu is built without CUDA. '
        'To run without one, use wherry.rehearse("cuda") or `wherry run --on cuda`.',
    ),
    (
        DeviceAbsent("mps", "MPS needs macOS 14 or newer", broken=True, asked_by="WHERRY_DEVICE"),
        RuntimeError,
        '"mps" is broken (WHERRY_DEVICE is "mps"): MPS needs macOS 14 or newer. '
        'To run without one, use wherry.rehearse("mps") or `wherry run --on mps`.',
    ),
    (
        NoSuitableDevice(["float64", "6 GiB of free memory"], [("mps:0", "cannot hold float64")]),
        RuntimeError,
        "No device here has float64 and 6 GiB of free memory. Passed over: mps:0: cannot hold float64.",
    ),
    (
        CannotRehearse("npu", "it has no virtual device"),
        RuntimeError,
        '"npu" cannot be rehearsed: it has no virtual device.',
    ),
    (
        TorchMissing("wherry.pick()"),
        ImportError,
        "wherry.pick() needs torch, which is not installed here. Install it with: pip install 'wherry[torch]'",
    ),
    (
        TorchMissing("wherry.pick()", reason="libcudart.so.13: cannot open shared object file"),
        ImportError,
        "wherry.pick() needs torch, which is installed but does not import: "
        "libcudart.so.13: cannot open shared object file",
    ),
    (
        MissingExtra("MLX", "mlx"),
        ImportError,
        'MLX is not installed. Install it with: pip install "wherry[mlx]"',
    ),
    (
        MissingExtra("MLX", "mlx", note="Nobody builds it for Windows."),
        ImportError,
        'MLX is not installed. Install it with: pip install "wherry[mlx]" Nobody builds it for Windows.',
    ),
    (
        MissingExtra("MLX", "mlx", reason="libmlx.so: cannot open shared object file"),
        ImportError,
        "MLX is installed but does not import: libmlx.so: cannot open shared object file. "
        'Install it with: pip install "wherry[mlx]"',
    ),
    (
        Unconvertible(
            "A complex128 tensor", "an MLX array", why="MLX has no complex128", fix="Use .to(torch.complex64)."
        ),
        TypeError,
        "A complex128 tensor cannot become an MLX array: MLX has no complex128. Use .to(torch.complex64).",
    ),
    (ScriptError("train.py", "invalid syntax", line=7), RuntimeError, "train.py, line 7: invalid syntax."),
    (
        ScriptMissing("trian.py", near=["train.py", "README.md"]),
        FileNotFoundError,
        "trian.py: there is no such file. Did you mean train.py?",
    ),
]


NAMES = [type(error).__name__ for error, _, _ in EXAMPLES]


@pytest.mark.parametrize(("error", "builtin", "text"), EXAMPLES, ids=NAMES)
def test_error_says_what_where_and_how_to_fix(error: WherryError, builtin: type[Exception], text: str) -> None:
    assert str(error) == text
    assert isinstance(error, builtin)


@pytest.mark.parametrize(("error", "builtin", "text"), EXAMPLES, ids=NAMES)
def test_error_survives_pickling(error: WherryError, builtin: type[Exception], text: str) -> None:
    back = pickle.loads(pickle.dumps(error))

    assert type(back) is type(error)
    assert str(back) == text
    assert vars(back) == vars(error)


def _public_classes() -> dict[str, type]:
    return {
        name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and cls.__module__ == errors.__name__
    }


def test_every_error_is_in_the_tree_of_the_docstring() -> None:
    assert errors.__doc__ is not None

    for name in _public_classes():
        assert f"{name} " in errors.__doc__ or f"{name}\n" in errors.__doc__, name


def test_every_error_has_an_example_here() -> None:
    shown = {type(error).__name__ for error, _, _ in EXAMPLES}

    assert shown == _public_classes().keys() - {"WherryError"}


def test_nearest_is_none_when_nothing_is_close() -> None:
    assert errors.nearest("toaster", ["cpu", "cuda"]) is None


def test_nearest_ignores_case_and_keeps_the_known_spelling() -> None:
    assert errors.nearest("READM.md", ["README.md"]) == "README.md"
