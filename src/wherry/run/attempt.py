"""One run, from its beginning to its end: prepare the children, run the program, add up, tell.

A program that runs in this process ends as it does under plain Python: the interpreter joins its threads and runs its
atexit handlers, in the rehearsal, and ours comes last. So `Attempt` finishes from an atexit handler that was registered
before the program began. Three ends need a hand:

- an uncaught KeyboardInterrupt: Python dies of SIGINT after all that, which cannot be had through the command line's
  own handling of exceptions, so the same steps are taken here;
- SIGTERM, unless the program handles it: the process would be gone at once, so a handler tells first;
- os._exit, exec, SIGKILL, a crash: nothing can be told; the result file says so from the start.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from wherry.errors import ScriptError, TorchMissing, WherryError
from wherry.run import uncaught
from wherry.run.children import Part, Session, invite
from wherry.run.command import die_of, run_command
from wherry.run.onpath.sitecustomize import when_torch_arrives
from wherry.run.plan import Plan, Want
from wherry.run.program import Command, Ending, Program, execute
from wherry.run.result import UNFINISHED, Counts, Failure, Result


class ResultUnwritable(WherryError, OSError):
    """The file that `--result` names cannot be written.

    Attributes:
        path: The file.
        reason: Why, as a clause.
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"The result cannot be written to {self.path}: {self.reason}. Name a file in a folder that is there."


class Attempt:
    """One run of one program. `run` once; the process is the program's from then on.

    Args:
        program: What to run.
        plan: Where.
        result_file: Where to write the `Result` as JSON, or None.
        tell: Called with the `Result` at the end, to print the closing line; or None.

    Raises:
        TorchMissing: a script or module is to run here, and torch is not installed.
    """

    def __init__(
        self, program: Program, plan: Plan, *, result_file: Path | None, tell: Callable[[Result], None] | None
    ) -> None:
        if not isinstance(program, Command) and find_spec("torch") is None:
            raise TorchMissing("wherry run")
        self.program = program
        self.plan = plan
        self.tell = tell
        # The program may change the current folder.
        self.result_file = None if result_file is None else Path(os.path.abspath(result_file))
        self.ending: Ending | None = None
        self._pid = os.getpid()
        self._session = Session.open()
        self._part = Part(plan, self._session)
        self._started = 0.0
        self._finished = False
        self._lent = False  # the handler of SIGTERM, while this process forks

    def run(self) -> Ending:
        """Run the program, and say how it ended. Does not return where a signal ended it.

        Raises:
            ResultUnwritable: noticed before the program runs.
            ScriptError: the program cannot be started.
        """
        self._write_first_result()
        invite(self.plan, self._session, os.environ)
        self._started = time.monotonic()
        if isinstance(self.program, Command):
            return self._run_command(self.program)
        return self._run_here(self.program)

    def _run_command(self, command: Command) -> Ending:
        try:
            ending = run_command(command, os.environ)
        except ScriptError as err:
            self._give_up(err)
            raise
        self.ending = ending
        self.finish()
        if ending.signal is not None:
            die_of(ending.signal)
        return ending

    def _run_here(self, program: Program) -> Ending:
        assert not isinstance(program, Command)
        atexit.register(self.finish)
        _restore_excepthook()
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            if hasattr(os, "register_at_fork"):  # not on Windows
                os.register_at_fork(before=self._put_sigterm_back, after_in_parent=self._take_sigterm_again)
        when_torch_arrives(self._begin)
        try:
            ending = execute(program)
        except ScriptError as err:
            atexit.unregister(self.finish)
            self._give_up(err)
            raise
        self.ending = ending
        if ending.signal is not None:
            self._end_like_python()
            die_of(ending.signal)
        return ending

    def _begin(self) -> None:
        try:
            self._part.begin()
        except WherryError as err:
            # Raised into the program it could be caught there, and the program would run on where it was not to run.
            raise SystemExit(f"wherry: {err}") from err
        except Exception as err:
            traceback.print_exc()
            raise SystemExit(
                f"wherry: the rehearsal on {self.plan.device} could not start; that is a fault of wherry"
            ) from err

    def _end_like_python(self) -> None:
        """What the interpreter does before it dies of SIGINT, except to take modules down."""
        join_threads: Callable[[], None] = threading._shutdown  # type: ignore[attr-defined]
        for step in (join_threads, atexit._run_exitfuncs):  # `finish` is among the latter
            with contextlib.suppress(KeyboardInterrupt):  # once more; Python goes on as well
                step()
        # Files that the program left open are written when modules are taken down.
        for one in gc.get_objects():
            if issubclass(type(one), (io.TextIOWrapper, io.BufferedWriter)):
                with contextlib.suppress(Exception):
                    one.flush()

    def finish(self) -> None:
        """Add up and tell, once. In a process that the program forked: leave a report instead."""
        if os.getpid() != self._pid:
            self._part.report()
            return
        if self._finished:
            return
        self._finished = True
        result = self._result()
        self._session.close()
        if self.result_file is not None:
            try:
                result.write(self.result_file)
            except OSError as err:
                _say(f"wherry: {ResultUnwritable(self.result_file, _reason(err))}")
        if self.tell is not None:
            self.tell(result)

    def _result(self) -> Result:
        reports = self._session.reports()
        virtual = self.plan.want is Want.VIRTUAL or self._part.virtual or any(report.virtual for report in reports)
        processes = len(reports) + self._part.begun
        counts: Counts | None = None
        # Where torch was never imported nobody asked whether the device is here, and nothing ran on it.
        if virtual or not processes:
            own = self._part.counts() if self._part.begun else Counts()
            counts = sum((report.counts for report in reports), own)
        ending = self.ending
        error = UNFINISHED if ending is None else ending.error
        if ending is not None and ending.status and error is None:
            # A command: its own words are its own, but the first Python process that failed left a report.
            error = next((report.error for report in reports if report.error is not None), None)
        return Result(
            device=self.plan.device,
            virtual=virtual,
            status=None if ending is None else ending.status,
            error=error,
            counts=counts,
            processes=processes,
            seconds=time.monotonic() - self._started,
        )

    def _write_first_result(self) -> None:
        if self.result_file is None:
            return
        result = Result(self.plan.device, self.plan.want is Want.VIRTUAL, status=None, error=UNFINISHED, counts=None)
        try:
            result.write(self.result_file)
        except OSError as err:
            self._session.close()
            raise ResultUnwritable(self.result_file, _reason(err)) from None

    def _give_up(self, err: ScriptError) -> None:
        """The program could not be started: the result file says why, the caller tells."""
        self.tell = None
        kind = type(err)
        status = getattr(err, "status", 2)
        self.ending = Ending(status, Failure(f"{kind.__module__}.{kind.__qualname__}", str(err)))
        self.finish()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        try:
            if os.getpid() != self._pid:  # forked on another thread
                return
            file, line = uncaught.user_line_of_frame(frame)
            failure = Failure("SIGTERM", "The program was ended by the signal SIGTERM.", file, line)
            self.ending = Ending(128 + number, failure, number)
            self.finish()
        finally:
            die_of(number)

    def _put_sigterm_back(self) -> None:
        # Before the fork: a signal that a Python handler has noted, but not yet handled, is forgotten in the child.
        self._lent = signal.getsignal(signal.SIGTERM) == self._on_sigterm and _is_main_thread()
        if self._lent:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _take_sigterm_again(self) -> None:
        if self._lent:
            signal.signal(signal.SIGTERM, self._on_sigterm)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()  # signal.signal is refused on others


def _restore_excepthook() -> None:
    """Undo what the command line's library did to `sys.excepthook`: the program shall find what Python left there."""
    typer_main = sys.modules.get("typer.main")
    if typer_main is not None and sys.excepthook is getattr(typer_main, "except_hook", None):
        sys.excepthook = getattr(typer_main, "_original_except_hook", sys.__excepthook__)


def _reason(err: OSError) -> str:
    return (err.strerror or str(err)).lower()


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be closed, or None
        print(text, file=sys.stderr)
