"""Programs that fail on a virtual device, in this process, and what the post-mortem says of them."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import wherry

collect_ignore_glob = ["cases/*"]  # they fail when they are run, which is what they are for

Fail = Callable[..., BaseException]


@pytest.fixture
def run_program() -> Iterator[Callable[..., tuple[str, BaseException | None]]]:
    """Run a file as `__main__` in a rehearsal: what it printed, and the exception that ended it."""
    before = sys.modules["__main__"], list(sys.path), list(sys.argv), torch.get_default_dtype(), torch.is_grad_enabled()

    def run(
        path: Path, device: str = "cuda", count: int = 1, profile: str | None = None
    ) -> tuple[str, BaseException | None]:
        main = types.ModuleType("__main__")
        main.__file__ = str(path)
        sys.modules["__main__"] = main
        sys.path.insert(0, str(path.parent))
        sys.argv = [str(path)]
        code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        printed = io.StringIO()
        error: BaseException | None = None
        rehearsal = wherry.rehearse(device, count=count, profile=profile)
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed), rehearsal:
            warnings.simplefilter("ignore")
            try:
                exec(code, main.__dict__)
            except Exception as err:
                error = err
        return printed.getvalue(), error

    yield run
    sys.modules["__main__"], sys.path[:], sys.argv[:] = before[:3]
    torch.set_default_dtype(before[3])
    torch.set_grad_enabled(before[4])
    random.seed()
    linecache.checkcache()


@pytest.fixture
def fail(tmp_path: Path, run_program) -> Fail:
    """The exception that a program text ends in."""

    def run(text: str, device: str = "cuda", count: int = 1, profile: str | None = None) -> BaseException:
        path = tmp_path / "program.py"
        path.write_text(text, encoding="utf-8")
        linecache.checkcache(str(path))
        _, error = run_program(path, device, count, profile)
        assert error is not None, "the program was to fail"
        return error

    return run
