"""`with wherry.explain():` a device error that passes through takes its explanation along."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, overload

from wherry.explain.diagnosis import Diagnosis
from wherry.explain.postmortem import explain_exception

_MARK = "wherry: "
F = TypeVar("F", bound=Callable[..., Any])


class Explaining(contextlib.ContextDecorator):
    """A block whose device errors are explained; made by `explain`. A context manager and a decorator.

    Attributes:
        diagnosis: Of the last device error that passed, or None.
    """

    def __init__(self) -> None:
        self.diagnosis: Diagnosis | None = None

    def __enter__(self) -> Explaining:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or is_explained(error):
            return
        self.diagnosis = explain_exception(error)
        if self.diagnosis is not None:
            with contextlib.suppress(Exception):  # a fault of ours must not take the place of the error
                note(error, self.diagnosis)


@overload
def explain() -> Explaining: ...
@overload
def explain(function: F) -> F: ...
def explain(function: F | None = None) -> Explaining | F:
    """Explain the device errors of a block, or of a function: `@wherry.explain`.

    The exception goes on as it is, with the explanation added as a note, which Python prints below its traceback, and
    notebooks and pytest do too (Python 3.11; before that it is printed on stderr). Entering the block does nothing, so it
    costs nothing until something fails.

    >>> import torch, wherry
    >>> try:
    ...     with wherry.rehearse("cuda"), wherry.explain() as explained:
    ...         torch.ones(2, device="cuda") * torch.ones(2)
    ... except RuntimeError:
    ...     print(explained.diagnosis.culprit.name)
    torch.ones(2)

    Args:
        function: The function to decorate. Not a generator or a coroutine function: those run after it has returned.
    """
    return Explaining() if function is None else Explaining()(function)


def note(error: BaseException, diagnosis: Diagnosis) -> None:
    """Add a diagnosis to an exception."""
    text = str(diagnosis)
    if sys.version_info >= (3, 11):
        error.add_note(text)
    else:
        print(text, file=sys.stderr)  # noqa: T201 - there are no notes yet
        with contextlib.suppress(AttributeError, TypeError):
            vars(error)["__notes__"] = [*getattr(error, "__notes__", []), text]


def is_explained(error: BaseException) -> bool:
    """Whether a note of ours is on an exception already, or on what it was raised from."""
    one: BaseException | None = error
    for _ in range(10):
        if one is None:
            return False
        try:
            notes = BaseException.__getattribute__(one, "__notes__")
        except AttributeError:
            notes = None
        if type(notes) is list and any(type(text) is str and text.startswith(_MARK) for text in notes):
            return True
        base = vars(BaseException)
        one = base["__cause__"].__get__(one) or base["__context__"].__get__(one)
    return False
