"""Where in the user's program are we? The file and line of what is happening now.

The user's frame is the innermost one that is not PyTorch's, not wherry's and not the standard library's. Its code
object and instruction offset are cheap to keep (no frame, so no locals stay alive) and become a `Callsite` only when
somebody asks.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType

_STDLIB = os.path.normcase(sysconfig.get_paths()["stdlib"]) + os.sep
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STDLIBS = tuple({os.path.normcase(sysconfig.get_paths()[name]) + os.sep for name in ("stdlib", "platstdlib")})
_PACKAGES = ("site-packages", "dist-packages")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TYPED_IN = ("<stdin>", "<ipython-input-", "<doctest ", "<timed ")
_NOT_THE_USERS = ("torch", "torchgen", "functorch")

library: dict[str, bool] = {}
"""File name of a code object -> whether it belongs to PyTorch, wherry or Python. Filled on demand; read on the hot path."""


@dataclass(frozen=True, slots=True)
class Callsite:
    """A line of a program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def to_json(self) -> dict[str, object]:
        return {"file": self.file, "line": self.line, "function": self.function}


def is_library(filename: str) -> bool:
    """Whether code of this file is PyTorch's, wherry's or Python's own."""
    known = library.get(filename)
    if known is None:
        known = library[filename] = _classify(filename)
    return known


def _classify(filename: str) -> bool:
    if filename.startswith("<frozen "):
        return True
    path = os.path.normcase(os.path.abspath(filename))
    for marker in _INSTALLED:
        _, found, inside = path.rpartition(marker)
        if found:
            return inside.split(os.sep, 1)[0] in (*_NOT_THE_USERS, "wherry")
    return path.startswith((_STDLIB, _OWN))


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame at or above `frame` that is the user's, or None."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction offset (`frame.f_lasti`)."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            return number
    return line


def site_of(code: CodeType | None, instruction: int) -> Callsite | None:
    """The line that a record names, or None where nothing was recorded."""
    if code is None:
        return None
    return Callsite(code.co_filename, line_of(code, instruction), code.co_name)


def here(depth: int = 1) -> Callsite | None:
    """The user's line that is running now, seen from `depth` frames up."""
    frame = user_frame(sys._getframe(depth))
    return None if frame is None else site_of(frame.f_code, frame.f_lasti)


def stacklevel() -> int:
    """What `warnings.warn` is to be told so that a warning names the innermost line outside of wherry.

    PyTorch's own warnings from C++ name the innermost Python frame, which may be one of torch's.
    """
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_OWN):
        frame = frame.f_back
        level += 1
    return level


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the user's line that is running now, however deep in a library this is called."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    names = frame.f_globals
    # The registry of that module: Python's filters say a text once per line of it.
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__"),
        names.setdefault("__warningregistry__", {}),
    )


def judge() -> Callable[[str], bool]:
    """A function that tells whether a file is the user's own, in this process, now: neither installed nor Python's.

    A program that is itself installed and run by `-m` is the user's all the same. Stricter than `is_library`, which only
    tells torch from the rest, on a hot path; this one looks once.
    """
    main = sys.modules.get("__main__")
    main_file: str | None = getattr(main, "__file__", None)
    own = _own_folder(main, main_file)
    torch_file: str | None = getattr(sys.modules.get("torch"), "__file__", None)
    never = (_OWN,) if torch_file is None else (_OWN, os.path.dirname(os.path.abspath(torch_file)) + os.sep)

    def is_users(file: str) -> bool:
        if file.startswith("<"):
            # `python -`, `python -c`, notebooks. Any other text in angle brackets was made by exec.
            return file.startswith(_TYPED_IN) or (file == "<string>" and main_file is None)
        path = os.path.normcase(os.path.abspath(file))
        if path.startswith(never):
            return False
        if own is not None and path.startswith(own):
            path = path[len(own) :]  # an environment inside the program's folder is not the program's
        elif path.startswith(_STDLIBS):
            return False
        return not any(part in _PACKAGES for part in path.split(os.sep))

    return is_users


def _own_folder(main: object, main_file: str | None) -> str | None:
    """Where the program's own files are: its package when it was run by `-m`, else the folder of the script."""
    spec = getattr(main, "__spec__", None)
    package = (spec.parent or "").partition(".")[0] if spec is not None else ""
    if package:
        if package in (*_NOT_THE_USERS, "wherry"):
            return None
        init = getattr(sys.modules.get(package), "__file__", None)
        if init is not None:
            return os.path.normcase(os.path.dirname(os.path.abspath(init))) + os.sep
    if main_file is None:
        return None
    path = os.path.normcase(os.path.abspath(main_file))
    folder = os.path.dirname(path) + os.sep
    shared = os.path.basename(folder[:-1]) in _PACKAGES or folder in _STDLIBS
    # A single file that was installed: the rest of that folder is other people's.
    return path if shared else folder
