"""Where in the user's program are we: the innermost frame that is nobody's library."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from wherry import callsite
from wherry.callsite import Callsite

PURE = Path(sysconfig.get_paths()["purelib"])
STDLIB = Path(sysconfig.get_paths()["stdlib"])


@pytest.mark.parametrize(
    "file",
    [
        str(PURE / "torch" / "nn" / "modules" / "linear.py"),
        str(PURE / "torchgen" / "model.py"),
        str(PURE / "functorch" / "__init__.py"),
        "/opt/env/lib/python3.12/site-packages/torch/_tensor.py",
        "/usr/lib/python3/dist-packages/torch/_tensor.py",
        str(STDLIB / "threading.py"),
        str(STDLIB / "concurrent" / "futures" / "thread.py"),
        "<frozen importlib._bootstrap>",
        callsite.__file__,
        str(Path(callsite.__file__).parent / "rehearse" / "mode.py"),
        "/opt/env/lib/python3.12/site-packages/wherry/callsite.py",
    ],
)
def test_file_of_a_library_is_not_the_users(file: str) -> None:
    assert callsite.is_library(file)


@pytest.mark.parametrize(
    "file",
    [
        __file__,
        "/home/me/train.py",
        "train.py",
        "/home/me/torch/train.py",
        "/home/me/torch_tricks.py",
        "/opt/env/lib/python3.12/site-packages/transformers/trainer.py",
        "/opt/env/lib/python3.12/site-packages/torchvision/models/resnet.py",
        "/opt/env/lib/python3.12/site-packages/torch_geometric/nn/conv.py",
        "<stdin>",
        "<string>",
        "<ipython-input-3-0a1b2c>",
        "/tmp/ipykernel_7/123.py",
    ],
)
def test_file_of_a_program_is_the_users(file: str) -> None:
    assert not callsite.is_library(file)


def test_answer_is_remembered() -> None:
    callsite.library.pop("/home/me/remembered.py", None)

    callsite.is_library("/home/me/remembered.py")

    assert callsite.library["/home/me/remembered.py"] is False


def test_here_is_this_line() -> None:
    site = callsite.here()

    assert site is not None
    assert site.file == __file__
    assert site.function == "test_here_is_this_line"
    assert "site = callsite.here()" in Path(__file__).read_text(encoding="utf-8").splitlines()[site.line - 1]


def test_here_looks_past_the_standard_library() -> None:
    found: list[Callsite | None] = []

    thread = threading.Thread(target=lambda: found.append(callsite.here()))
    thread.start()
    thread.join()

    assert found[0] is not None
    assert found[0].file == __file__
    assert found[0].function == "<lambda>"


def through_a_library(call: Callable[[], object]) -> object:
    """Call it from code whose file belongs to torch."""
    scope: dict[str, object] = {"call": call}
    exec(compile("def wrapper():\n    return call()\n", str(PURE / "torch" / "pretended.py"), "exec"), scope)
    wrapper = scope["wrapper"]
    assert callable(wrapper)
    return wrapper()


def test_frame_of_the_user_is_found_above_a_library() -> None:
    def innermost() -> FrameType:
        return sys._getframe(1)  # the frame of torch/pretended.py

    frame = through_a_library(innermost)
    assert isinstance(frame, FrameType)
    user = callsite.user_frame(frame)

    assert frame.f_code.co_filename.endswith("pretended.py")
    assert user is not None
    assert user.f_code.co_filename == __file__
    assert user.f_code.co_name == "through_a_library"


def test_no_user_is_no_frame() -> None:
    assert callsite.user_frame(None) is None
    assert callsite.site_of(None, -1) is None


def test_line_of_an_instruction_is_the_line_that_was_running() -> None:
    def two_lines() -> FrameType:
        frame = sys._getframe()
        return frame  # noqa: RET504 - the frame must have run on

    frame = two_lines()

    assert callsite.line_of(frame.f_code, frame.f_lasti) == two_lines.__code__.co_firstlineno + 2


def test_line_of_an_unknown_instruction_is_the_first_line() -> None:
    code = test_no_user_is_no_frame.__code__

    assert callsite.line_of(code, -1) == code.co_firstlineno


def test_callsite_is_written_as_editors_know_it() -> None:
    site = Callsite("train.py", 12, "step")

    assert str(site) == "train.py:12"
    assert site.to_json() == {"file": "train.py", "line": 12, "function": "step"}
