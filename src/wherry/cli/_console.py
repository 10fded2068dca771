"""What every command shares: the console, the exit statuses, and what a command is.

A command is a file here that binds `COMMAND`. JSON goes to stdout as it is; text for people goes through `out()`, and what
is wrong goes to stderr through `complain()`, one sentence.
"""

from __future__ import annotations

import enum
import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.theme import Theme
from typer.core import TyperCommand

THEME = Theme(
    {
        "present": "green",
        "absent": "dim",
        "broken": "bold red",
        "good": "green",
        "bad": "red",
        "warning": "yellow",
        "quiet": "dim",
        "heading": "bold",
        "device": "bold cyan",
        "command": "cyan",
    }
)


class Status(enum.IntEnum):
    """Exit statuses. `wherry run` exits with the program's own."""

    OK = 0
    FAILED = 1  # it ran, and the answer is bad news
    MISUSE = 2  # it could not run: a wrong argument, an unreadable file, no torch


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `wherry`.

    Attributes:
        function: What it does. Its signature is the usage, its docstring the help, its name the command's.
        position: Where it stands in `wherry --help`; smaller is higher.
        cls: How its words are read, where click's way does not do: `run` must leave the program's own options alone.
        settings: Passed to click, such as {"ignore_unknown_options": True} (`context_settings` of typer's `command`).
    """

    function: Callable[..., None]
    position: int
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    cls: type[TyperCommand] | None = None

    @property
    def name(self) -> str:
        return self.function.__name__.rstrip("_").replace("_", "-")


def out() -> Console:
    """The console for people, on stdout. Made anew, so that it looks at the stdout of now.

    What its encoding lacks is shown as an escape: a program's own lines may hold anything.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(theme=THEME, highlight=False)


def complain(sentence: str) -> None:
    """Say on stderr what is wrong."""
    console = Console(theme=THEME, highlight=False, stderr=True)
    console.print("[broken]wherry:[/] ", end="")
    # Not wrapped: a path or a command in it must stay whole to be copied.
    console.print(sentence, markup=False, soft_wrap=True)
