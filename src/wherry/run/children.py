"""The processes of a run: how children are told of it, what each one counts, and how it comes back.

The parent makes a session folder, and an environment in which every Python process first imports
`onpath/sitecustomize.py`. That waits for torch and then calls `take_part`. Each process that took part leaves a report in
the session folder when it ends; the parent adds them up. A process that is killed leaves none.

A forked process (DataLoader workers, by default on Linux) inherits the rehearsal with everything its parent had counted
so far, so it reports the difference.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from wherry.events import Tally
from wherry.run import uncaught
from wherry.run.onpath.sitecustomize import TorchArrival
from wherry.run.plan import Plan, forget
from wherry.run.result import Counts, Failure

if TYPE_CHECKING:
    from wherry.rehearse import Rehearsal

_SESSION = "WHERRY_SESSION"
_ON_PATH = str(Path(__file__).resolve().parent / "onpath")


@dataclass(frozen=True, slots=True)
class Report:
    """What one process has to tell when it ends.

    Attributes:
        virtual: Whether it rehearsed. False where a real device was here.
        counts: Its own, without those of the process it was forked from.
        error: The uncaught exception that ended it, or None.
        time: When it was written, in seconds since the epoch.
    """

    virtual: bool
    counts: Counts
    error: Failure | None = None
    time: float = 0.0

    def to_json(self) -> dict[str, object]:
        return {
            "virtual": self.virtual,
            "counts": self.counts.to_json(),
            "error": None if self.error is None else self.error.to_json(),
            "time": self.time,
        }


class Session:
    """The folder where the processes of one run leave their reports. Only its maker closes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls) -> Session:
        return cls(Path(tempfile.mkdtemp(prefix="wherry-run-")))

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> Session | None:
        """The one that the parent opened."""
        folder = environ.get(_SESSION)
        return None if folder is None else cls(Path(folder))

    def leave(self, name: str, report: Report) -> None:
        """Put a report there. A session that is over has no folder any more: then nobody is left to read it."""
        draft = self.folder / f"{name}.part"
        try:
            draft.write_text(json.dumps(report.to_json()), encoding="utf-8")
            draft.replace(self.folder / f"{name}.json")
        except FileNotFoundError:
            return

    def reports(self) -> tuple[Report, ...]:
        """All that were left so far, the earliest first."""
        found = []
        for file in self.folder.glob("*.json"):
            data = json.loads(file.read_text(encoding="utf-8"))
            error = None if data["error"] is None else Failure.from_json(data["error"])
            found.append(Report(data["virtual"], Counts.from_json(data["counts"]), error, data["time"]))
        return tuple(sorted(found, key=lambda report: report.time))

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def invite(plan: Plan, session: Session, environ: MutableMapping[str, str]) -> None:
    """Change an environment so that Python processes started with it take part."""
    dismiss(environ)
    plan.write_to(environ)
    environ[_SESSION] = str(session.folder)
    rest = environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = _ON_PATH if not rest else _ON_PATH + os.pathsep + rest


def dismiss(environ: MutableMapping[str, str]) -> None:
    """Take an enclosing run out of an environment: its plan, its session, its folder on the path."""
    forget(environ)
    environ.pop(_SESSION, None)
    path = environ.get("PYTHONPATH")
    if path is not None:
        # An empty entry means the current folder, and stays.
        rest = [entry for entry in path.split(os.pathsep) if entry != _ON_PATH]
        if rest:
            environ["PYTHONPATH"] = os.pathsep.join(rest)
        else:
            del environ["PYTHONPATH"]


def stand_apart() -> None:
    """Leave an enclosing run: a `wherry run` inside a `wherry run` is a run of its own. Call it before torch arrives."""
    dismiss(os.environ)
    for finder in list(sys.meta_path):
        # By name: the enclosing run's finder was made from the same file, but under the name `sitecustomize`.
        cancel: object = getattr(finder, "cancel", None)
        if type(finder).__name__ == TorchArrival.__name__ and callable(cancel):
            cancel()


class Part:
    """The part that this process has in a run, from the arrival of torch to the end of the process.

    The rehearsal is never left: destructors that run while the interpreter goes down still see the device.
    """

    def __init__(self, plan: Plan, session: Session | None) -> None:
        self.plan = plan
        self.session = session
        self.error: Failure | None = None
        self.forked = False
        self.virtual = False
        self.begun = False
        self._rehearsal: Rehearsal | None = None
        self._before = Counts()
        self._at_fork = Counts()
        self._name = _unique()

    def begin(self) -> None:
        """torch has arrived: decide, and start rehearsing on this thread."""
        self.begun = True
        self.virtual = self.plan.is_virtual()
        threading.excepthook = uncaught.tidy_in_threads(threading.excepthook)
        if not self.virtual:
            return
        from wherry.rehearse import rehearse

        plan = self.plan
        self._rehearsal = rehearse(plan.device, count=plan.count, memory=plan.memory, profile=plan.profile)
        if plan.surveys:
            self._rehearsal.uses = Tally()
        self._rehearsal.__enter__()
        # Before the fork: what the statistics are read under may be held by another thread when the process forks.
        if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
            os.register_at_fork(before=self._remember, after_in_child=self._wake_up_forked)
        self._report_where_atexit_does_not()

    def counts(self) -> Counts:
        """What this process counted so far."""
        return self._so_far() - self._before

    def report(self) -> None:
        """Leave what this process has to tell; a later report of the same process replaces it."""
        if self.begun and self.session is not None:
            self.session.leave(self._name, Report(self.virtual, self.counts(), self.error, time.time()))

    def _so_far(self) -> Counts:
        if self._rehearsal is None:
            return Counts()
        seen = self._rehearsal.statistics()
        return Counts(
            seen.ops, seen.h2d_nbytes, seen.d2h_nbytes, seen.d2d_nbytes, seen.fallbacks, seen.steps, seen.uses
        )

    def _remember(self) -> None:
        self._at_fork = self._so_far()

    def _wake_up_forked(self) -> None:
        self._before = self._at_fork
        self._name = _unique()
        self.forked = True
        self.error = None

    def _report_where_atexit_does_not(self) -> None:
        """A process that multiprocessing forked ends by os._exit, without atexit; but it runs its finalizers."""
        from multiprocessing import util  # torch has imported it

        def at_end(part: Part) -> None:
            util.Finalize(None, part.report, exitpriority=-1000)

        # Not a finalizer now: multiprocessing drops those when it starts its work in a new process, then calls these.
        util.register_after_fork(self, at_end)


def _unique() -> str:
    return f"{os.getpid()}-{uuid4().hex}"


def take_part() -> None:
    """Take part in the run that the environment tells of. For `onpath/sitecustomize.py`, when torch has arrived."""
    part = Part(Plan.read_from(os.environ), Session.of(os.environ))
    part.begin()
    atexit.register(part.report)
    sys.excepthook = uncaught.tidy_in(sys.excepthook, part)
