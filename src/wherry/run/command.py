"""Any command, run as a child: signals are passed on, and its end becomes ours."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType

from wherry.errors import ScriptError
from wherry.run.program import Command, Ending

# By name, because Windows has only the first two.
_PASSED_ON = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_FROM_THE_KEYBOARD = ("SIGINT", "SIGQUIT")


def run_command(command: Command, environ: Mapping[str, str]) -> Ending:
    """Run a command to its end.

    Raises:
        ScriptError: there is no such command, or it may not be run. `status` is 127 or 126, as a shell has it.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before there was anybody to pass them to

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if child is None:
            early.append(number)
        elif not (signal.Signals(number).name in _FROM_THE_KEYBOARD and _in_foreground()):
            child.send_signal(number)

    for number in _PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's choice is the child's as well
            signal.signal(number, pass_on)
    sys.stdout.flush()
    try:
        child = subprocess.Popen(command.argv, env=environ)
    except FileNotFoundError:
        raise CommandError(command.argv[0], "there is no such command", status=127) from None
    except OSError as err:
        raise CommandError(command.argv[0], f"it cannot be run ({err.strerror})", status=126) from None
    for number in early:
        child.send_signal(number)
    status = child.wait()
    return Ending(128 - status, signal=-status) if status < 0 else Ending(status)


class CommandError(ScriptError):
    """A command cannot be started. `status` is what a shell exits with: 127 when there is none, else 126."""

    def __init__(self, program: str, reason: str, *, status: int) -> None:
        super().__init__(program, reason)
        self.status = status


def _in_foreground() -> bool:
    """Whether a key such as Ctrl-C reaches the child without us: it is in the terminal's foreground group, as we are."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def die_of(number: int) -> None:
    """End this process by a signal, so that its parent sees what it would have seen of the program itself."""
    with contextlib.suppress(ImportError):  # Windows has neither this module nor core dumps
        import resource

        # The program left its own core dump, if it was to leave one.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):  # SIGKILL has no handler to reset
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
