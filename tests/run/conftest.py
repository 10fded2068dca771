"""Programs under `wherry run`, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import wherry

SRC = str(Path(wherry.__file__).parents[1])


def environment(**changes: str) -> dict[str, str]:
    """The environment of the tests, without what would change how a program runs, and with this wherry on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WHERRY_", "PYTHON", "COV_"))}
    return {**kept, "PYTHONPATH": SRC, "OMP_NUM_THREADS": "1", **changes}


@dataclass(frozen=True)
class Done:
    """A process that has ended."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Folder:
    """A folder with programs, and the ways to run them."""

    path: Path

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    def start(self, *argv: str, env: Mapping[str, str] | None = None, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            cwd=self.path,
            env=environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )

    def end(self, process: subprocess.Popen[str]) -> Done:
        stdout, stderr = process.communicate(timeout=60)
        return Done(process.returncode, stdout, stderr)

    def wherry(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        return self.end(self.start(sys.executable, "-m", "wherry", *args, env=env))

    def python(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        return self.end(self.start(sys.executable, *args, env=env))

    def result(self, name: str = "result.json") -> dict[str, object]:
        return json.loads((self.path / name).read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def script(folder: Folder) -> Callable[[str], str]:
    """Write `program.py`, and give its name."""

    def write(text: str) -> str:
        return folder.write("program.py", text).name

    return write
