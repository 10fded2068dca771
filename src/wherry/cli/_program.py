"""How the words after `wherry run` and `wherry matrix` are split: our options, then the program with its own.

The program begins at the first word that is no option of ours, at `-m`, or at `--`. Everything after that is the program's,
also where it looks like an option of ours: `wherry run train.py --count 3` gives the program its `--count`. click would go
on after `-m MODULE`, and would swallow the `--` that says that a command follows; so the line is drawn before it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from typer import Context

PROGRAM = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROGRAM",
        show_default=False,
        help="SCRIPT ARGS, or -m MODULE ARGS, or -- COMMAND ARGS. Everything from here on is the program's.",
    ),
]


class ProgramCommand(TyperCommand):
    """A command whose last argument is a whole program: "SCRIPT", "-m" or "--" first, then what follows it."""

    # The type of `ctx` is click's in older typers and their own in newer ones.
    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        with_value = {
            name
            for param in self.get_params(ctx)
            if param.param_type_name == "option"
            and not (getattr(param, "is_flag", False) or getattr(param, "count", False))
            for name in param.opts
        }
        return super().parse_args(ctx, divide(args, with_value))


def divide(words: list[str], with_value: set[str]) -> list[str]:
    """Draw the line between our options and the program: click takes what follows a "--" as it is.

    Args:
        words: The command line.
        with_value: Our options that take the next word as their value.

    >>> divide(["--on", "mps", "train.py", "--on", "x"], {"--on"})
    ['--on', 'mps', '--', 'train.py', '--on', 'x']
    >>> divide(["-mtrain", "--quiet"], set()), divide(["--quiet", "--", "ls"], set())
    (['--', '-m', 'train', '--quiet'], ['--quiet', '--', '--', 'ls'])
    """
    i = 0
    while i < len(words):
        word = words[i]
        if word.startswith("-m"):
            attached = [word[2:]] if len(word) > 2 else []
            return [*words[:i], "--", "-m", *attached, *words[i + 1 :]]
        if word == "-" or not word.startswith("-") or word == "--":
            return [*words[:i], "--", *words[i:]]
        i += 2 if word in with_value else 1
    return words
