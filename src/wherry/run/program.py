"""A program, as it was named on the command line, and how to run it in this process as Python would.

`find` turns words into a `Script`, a `Module` or a `Command` and refuses what cannot be started. `execute` runs one of
the first two as `__main__`: `sys.argv`, `sys.path[0]`, `__file__`, `__spec__`, pickling, spawned children and tracebacks
are those of `python SCRIPT` and `python -m MODULE`. What an enclosing Python adds and cannot be hidden: a few frames at
the bottom of the stack, and the modules that wherry itself has imported.

Source: CPython 3.11, Modules/main.c (pymain_run_python), Python/pythonrun.c (pyrun_simple_file), Lib/runpy.py.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import pkgutil
import runpy
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType

from wherry.errors import ScriptError, ScriptMissing
from wherry.run import uncaught
from wherry.run.result import Failure


@dataclass(frozen=True, slots=True)
class Script:
    """`SCRIPT ARGS`: a file, a folder or an archive with a `__main__.py`, or "-" for standard input."""

    path: str
    args: tuple[str, ...] = ()

    def words(self) -> tuple[str, ...]:
        return (self.path, *self.args)


@dataclass(frozen=True, slots=True)
class Module:
    """`-m MODULE ARGS`."""

    name: str
    args: tuple[str, ...] = ()

    def words(self) -> tuple[str, ...]:
        return ("-m", self.name, *self.args)


@dataclass(frozen=True, slots=True)
class Command:
    """`-- COMMAND ARGS`: any program, Python or not."""

    argv: tuple[str, ...]

    def words(self) -> tuple[str, ...]:
        return ("--", *self.argv)


Program = Script | Module | Command


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended.

    Attributes:
        status: Its exit status; 128 + n where signal n ended it.
        error: What ended it before its time, or None.
        signal: The signal that ended it, which its parent must see, or None.
    """

    status: int
    error: Failure | None = None
    signal: int | None = None


def find(words: Sequence[str]) -> Program:
    """Read a program from the command line: `SCRIPT ARGS`, `-m MODULE ARGS` or `-- COMMAND ARGS`.

    Raises:
        ScriptMissing: there is no such script.
        ScriptError: nothing is named, or what is named cannot be started.
    """
    if not words:
        raise ScriptError("nothing to run", "name a script, -m MODULE, or -- COMMAND")
    first, rest = words[0], tuple(words[1:])
    if first == "-m":
        if not rest or not rest[0]:
            raise ScriptError("-m", "no module is named after it")
        return Module(rest[0], rest[1:])
    if first == "--":
        if not rest:
            raise ScriptError("--", "no command is named after it")
        return Command(rest)
    _check_script(first)
    return Script(first, rest)


def _check_script(path: str) -> None:
    if path == "-":
        return
    if not os.path.exists(path):
        if os.sep not in path and shutil.which(path):
            raise ScriptError(path, f"there is no such file, but a command of that name. Write: -- {path}")
        folder = os.path.dirname(path)
        near = [os.path.join(folder, name) for name in _files(folder or ".")]
        raise ScriptMissing(path, near=near)
    if os.path.isfile(path) and not os.access(path, os.R_OK):
        raise ScriptError(path, "this file may not be read")
    importer = pkgutil.get_importer(os.fspath(path))
    if importer is None:
        return
    if importer.find_spec("__main__") is None:
        what = "folder" if os.path.isdir(path) else "archive"
        raise ScriptError(path, f"this {what} has no __main__.py to run")


def _files(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".py")]
    except OSError:
        return []


def execute(program: Script | Module) -> Ending:
    """Run a program in this process as `__main__`, to its last line. Its threads and atexit handlers are left to Python.

    Changes `sys.argv`, `sys.path`, `sys.orig_argv` and `sys.modules["__main__"]` for good: nothing but the end of the
    process is meant to follow.

    Raises:
        ScriptError: there is no such module, or it cannot be run.
    """
    try:
        main, code = _become(program)
        exec(code, main.__dict__)
    except SystemExit as leave:
        uncaught.tidy(leave)
        status = uncaught.exit_status(leave)
        return Ending(status, uncaught.failure_of(leave) if status else None)
    except runpy._Error as err:  # type: ignore[attr-defined]  # what `python -m` turns into its own message
        raise ScriptError(" ".join(program.words()[:2]), str(err)) from None
    except BaseException as exc:  # whatever the program raised ends here, as in the interpreter
        diagnosis = uncaught.explain(exc)
        uncaught.tidy(exc)
        failure = uncaught.failure_of(exc, diagnosis)
        status = uncaught.show(exc)
        uncaught.show_diagnosis(exc, diagnosis)
        if isinstance(exc, KeyboardInterrupt):
            return Ending(128 + signal.SIGINT, failure, signal.SIGINT)
        return Ending(status, failure)
    return Ending(0)


def _become(program: Script | Module) -> tuple[ModuleType, CodeType]:
    """Turn this process into the one that would run the program; what remains is to execute the code."""
    sys.orig_argv = [sys.executable, *program.words()]
    if isinstance(program, Module):
        _set_path_entry(os.getcwd())
        sys.argv = ["-m", *program.args]
        return _become_module(program.name, names_file=True)
    sys.argv = [program.path, *program.args]
    if program.path == "-":
        _set_path_entry("")
        main = _new_main(loader=importlib.machinery.BuiltinImporter)
        vars(main).update(__file__="<stdin>", __cached__=None)
        return main, compile(sys.stdin.read(), "<stdin>", "exec", dont_inherit=True)
    # Joined, not normalized: Python does not resolve ".." in `__file__` either.
    file = os.path.join(os.getcwd(), program.path)
    if pkgutil.get_importer(file) is not None:  # a folder or an archive
        _set_path_entry(file, even_if_safe=True)
        return _become_module("__main__", names_file=False)
    _set_path_entry(os.path.dirname(os.path.realpath(file)))
    main = _new_main(loader=importlib.machinery.SourceFileLoader("__main__", file))
    vars(main).update(__file__=file, __cached__=None)
    with io.open_code(file) as stream:
        code = pkgutil.read_code(stream)  # None unless it is a .pyc
    if code is not None:
        main.__loader__ = importlib.machinery.SourcelessFileLoader("__main__", file)
        return main, code
    with io.open_code(file) as stream:
        return main, compile(stream.read(), file, "exec", dont_inherit=True)


def _become_module(name: str, *, names_file: bool) -> tuple[ModuleType, CodeType]:
    # Without a `__main__` while it looks for one: that of wherry must not be taken for the program's.
    sys.modules.pop("__main__", None)
    main = _new_main(loader=None) if name != "__main__" else None
    _, spec, code = runpy._get_module_details(name, runpy._Error)  # type: ignore[attr-defined]
    main = main or _new_main(loader=None)
    if names_file:
        sys.argv[0] = spec.origin
    vars(main).update(
        __doc__=None,
        __package__=spec.parent,
        __loader__=spec.loader,
        __spec__=spec,
        __file__=spec.origin,
        __cached__=spec.cached,
    )
    return main, code


def _new_main(*, loader: object) -> ModuleType:
    main = ModuleType("__main__")
    main.__loader__ = loader  # type: ignore[assignment]
    if sys.version_info < (3, 14):  # PEP 649: since then it is made when it is asked for
        vars(main).update(__annotations__={})
    vars(main).update(__builtins__=builtins)
    sys.modules["__main__"] = main
    return main


def _set_path_entry(entry: str, *, even_if_safe: bool = False) -> None:
    """Put the program's entry first on `sys.path`, in the place of wherry's own.

    Python put ours there for the `wherry` script or for `python -m wherry`, unless it runs in safe mode (`-P`, `-I`).
    """
    safe = sys.flags.safe_path if sys.version_info >= (3, 11) else bool(sys.flags.isolated)
    if not safe:
        sys.path[0] = entry
    elif even_if_safe:
        sys.path.insert(0, entry)
