"""Notebooks: after `%load_ext wherry`, a device error of a cell is explained below its traceback.

IPython shows an exception through `shell.showtraceback`; ours calls the one that was there and adds the explanation. Nothing
else is changed, and `%unload_ext wherry` puts it back.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from rich.console import Console

from wherry.explain import Diagnosis, explain_exception
from wherry.explain.context import is_explained
from wherry.explain.text import show as show_text
from wherry.run.uncaught import tidy

_BEFORE = "_wherry_showtraceback"


def begin(shell: Any) -> None:
    """Explain device errors in this shell from now on. Twice is once."""
    if _BEFORE in vars(shell):
        return
    show = shell.showtraceback

    def showtraceback(exc_tuple: Any = None, *args: Any, **kwargs: Any) -> Any:
        error = sys.exc_info()[1] if exc_tuple is None else exc_tuple[1]
        explained = _explanation(error)
        if exc_tuple is not None and isinstance(error, BaseException):
            exc_tuple = (exc_tuple[0], error, error.__traceback__)
        result = show(exc_tuple, *args, **kwargs)
        if explained is not None:
            # A notebook's stderr is no terminal, and shows colour all the same.
            with contextlib.suppress(Exception):  # a fault of ours must not hide the cell's error
                sys.stdout.flush()
                show_text(explained, Console(file=sys.stderr, force_terminal=True, highlight=False))
        return result

    setattr(shell, _BEFORE, show)
    shell.showtraceback = showtraceback


def end(shell: Any) -> None:
    """Leave the shell as it was."""
    if _BEFORE in vars(shell):
        delattr(shell, _BEFORE)
        del shell.showtraceback  # the method of its class shows again


def _explanation(error: object) -> Diagnosis | None:
    """Why a device error happened. Afterwards its traceback is free of wherry's own frames."""
    if not isinstance(error, Exception):
        return None
    diagnosis = None if is_explained(error) else explain_exception(error)
    tidy(error)
    return diagnosis
