"""An uncaught exception: the traceback that plain Python would print, and the line that is the user's.

A rehearsal stands between the program and torch, and `wherry run` between Python and the program; both leave frames in a
traceback that the program would not have had. `tidy` takes them out, here and in everything the exception is chained to.
Below the traceback of a device error its explanation is printed.
Frames of wherry functions that the program called itself (`wherry.pick`) stay.

The user's line is the innermost one that `callsite.judge` says is the user's own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from wherry import callsite
from wherry.run.result import Failure

if TYPE_CHECKING:
    from wherry.explain import Diagnosis
    from wherry.run.children import Part

ExceptHook = Callable[[type[BaseException], BaseException, "TracebackType | None"], object]
ThreadHook = Callable[[threading.ExceptHookArgs], object]

QUIET = "WHERRY_QUIET"
"""The environment variable that tells a run and its children to say nothing of their own."""

_WHERRY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = tuple(
    _WHERRY + name for name in ("run" + os.sep, "rehearse" + os.sep, "cli" + os.sep, "dispatch.py", "storage.py")
)


def failure_of(exc: BaseException, diagnosis: Diagnosis | None = None) -> Failure:
    """What a result says of an exception. Call it after `tidy`, before the exception is let go."""
    kind = type(exc)
    # As in a traceback: the module is left out where it says nothing.
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    name = module + kind.__qualname__
    try:
        message = exc.msg if isinstance(exc, SyntaxError) else str(exc)
    except Exception:  # the program's own __str__; traceback says the same
        message = f"<{name} has no text: its str() failed>"
    file, line = user_line(exc)
    return Failure(name, message, file, line, None if diagnosis is None else diagnosis.to_json())


def user_line(exc: BaseException) -> tuple[str, int] | tuple[None, None]:
    """File and line of the innermost user's code, or None twice."""
    is_users = callsite.judge()
    if isinstance(exc, SyntaxError) and exc.filename and exc.lineno and is_users(exc.filename):
        return exc.filename, exc.lineno
    found: tuple[str, int] | tuple[None, None] = None, None
    for entry in _entries(exc.__traceback__):
        file = entry.tb_frame.f_code.co_filename
        if is_users(file):
            found = file, entry.tb_lineno
    return found


def user_line_of_frame(frame: FrameType | None) -> tuple[str, int] | tuple[None, None]:
    """The same for a running program: from the frame where a signal met it, outwards."""
    is_users = callsite.judge()
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return file, frame.f_lineno
        frame = frame.f_back
    return None, None


def tidy(exc: BaseException) -> None:
    """Take wherry's own frames out of the traceback of an exception, its causes, contexts and parts."""
    seen: set[int] = set()
    todo: list[BaseException] = [exc]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _trimmed(one.__traceback__)
        todo += [other for other in (one.__cause__, one.__context__) if other is not None]
        # ExceptionGroup is new in Python 3.11, and third parties offer it for 3.10.
        todo += [part for part in getattr(one, "exceptions", ()) if isinstance(part, BaseException)]


def _entries(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _trimmed(tb: TracebackType | None) -> TracebackType | None:
    entries = list(_entries(tb))
    files = [entry.tb_frame.f_code.co_filename for entry in entries]
    drop = [file.startswith(_MACHINERY) for file in files]
    if not any(drop):
        return tb
    # What leads into our frames or out of them goes with them, in both directions.
    for order in (range(1, len(files)), range(len(files) - 2, -1, -1)):
        step = order.step
        for i in order:
            drop[i] = drop[i] or (drop[i - step] and _is_glue(files[i]))
    kept: TracebackType | None = None
    for entry, dropped in zip(reversed(entries), reversed(drop), strict=True):
        if not dropped:
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _is_glue(file: str) -> bool:
    """Python's and torch's own frames that only hand over to ours."""
    if file.startswith(("<frozen runpy", "<frozen importlib")):
        return True
    path = file.replace(os.sep, "/")
    return path.endswith(("/runpy.py", "/torch/_ops.py", "/torch/_compile.py", "/torch/utils/_python_dispatch.py"))


def explain(exc: BaseException) -> Diagnosis | None:
    """Why a device error happened, or None. Call it before `tidy`: wherry's own frames know what was called with what."""
    if not isinstance(exc, Exception):
        return None
    from wherry.explain import explain_exception  # only when something has failed

    return explain_exception(exc)


def show_diagnosis(exc: BaseException, diagnosis: Diagnosis | None) -> None:
    """Print a diagnosis on stderr, unless the exception has shown one itself or the run is to be quiet."""
    if diagnosis is None or os.environ.get(QUIET) or sys.stderr is None:
        return
    from rich.console import Console

    from wherry.explain.context import is_explained
    from wherry.explain.text import show as show_text

    if is_explained(exc):
        return
    # A courtesy: not worth an error, be it the program's stream's or a fault of ours.
    with contextlib.suppress(Exception):
        sys.stderr.flush()
        show_text(diagnosis, Console(file=sys.stderr, highlight=False))


def show(exc: BaseException) -> int:
    """Print an uncaught exception as Python does, through `sys.excepthook`, and give the exit status.

    Source: CPython, Python/pythonrun.c, _PyErr_PrintEx.
    """
    sys.last_type, sys.last_value, sys.last_traceback = type(exc), exc, exc.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = exc
    try:
        sys.excepthook(type(exc), exc, exc.__traceback__)
    except SystemExit as leave:
        return exit_status(leave)
    except BaseException as second:  # what a program's own hook raises is shown, like the rest
        tidy(second)
        second.__context__ = None  # Python calls the hook with no exception set, so it is not chained to ours
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(second), second, second.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(exc), exc, exc.__traceback__)
    return 1


def exit_status(leave: SystemExit) -> int:
    """The exit status that a SystemExit asks for. One that is no number is printed on stderr, as Python does."""
    code = leave.code
    if code is None:
        return 0
    if isinstance(code, int):
        # The operating system keeps one byte; a number that is no C long becomes -1.
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    if sys.stderr is not None:
        print(code, file=sys.stderr)
    return 1


def tidy_in(hook: ExceptHook, part: Part) -> ExceptHook:
    """A `sys.excepthook` for a child process: tidy, tell the part of it, go on with the hook that was there, explain."""

    def excepthook(kind: type[BaseException], exc: BaseException, tb: TracebackType | None) -> None:
        diagnosis = explain(exc)
        tidy(exc)
        part.error = failure_of(exc, diagnosis)
        hook(kind, exc, exc.__traceback__)
        show_diagnosis(exc, diagnosis)

    return excepthook


def tidy_in_threads(hook: ThreadHook) -> ThreadHook:
    """A `threading.excepthook` that tidies, goes on with the one that was there, and explains."""

    def excepthook(args: threading.ExceptHookArgs) -> None:
        exc = args.exc_value
        if exc is None:
            hook(args)
            return
        diagnosis = explain(exc)
        tidy(exc)
        hook(threading.ExceptHookArgs((args.exc_type, exc, exc.__traceback__, args.thread)))
        show_diagnosis(exc, diagnosis)

    return excepthook
