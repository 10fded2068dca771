"""The command line: one file of this folder is one command.

`app()` puts them together and `main()` runs them; adding a command is adding a file that binds `COMMAND` (see
`_console.Command`). What wherry raises on its own account ends here as one sentence on stderr and exit status 2; anything
else is a bug of ours, or the program's own, and keeps its traceback. Nothing here imports torch.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Annotated

import typer

import wherry
from wherry import roster
from wherry.cli._console import Command, Status, complain
from wherry.errors import WherryError


def app() -> typer.Typer:
    """The commands of this folder as one application."""
    application = typer.Typer(
        name="wherry",
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,  # a traceback is shown as Python shows it
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback()(_wherry)
    commands = roster.read(sys.modules[__name__], binding="COMMAND", kind=Command, name=lambda command: command.name)
    for command in sorted(commands.entries, key=lambda command: command.position):
        application.command(command.name, cls=command.cls, context_settings=dict(command.settings))(command.function)
    return application


def main() -> None:
    """The console script."""
    try:
        app()(prog_name="wherry")
    except WherryError as err:
        complain(str(err))
        sys.exit(Status.MISUSE)


_HELP = """Carries PyTorch programs between devices, and rehearses the ones you do not have.

Start with [cyan]wherry devices[/], then [cyan]wherry run --on mps train.py[/]."""


def torch_version() -> str | None:
    """The version of the installed torch, or None. Does not import it."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def _show_version(wanted: bool) -> None:
    if wanted:
        torch = torch_version()
        print(  # noqa: T201 - the answer itself
            f"wherry {wherry.__version__} ({f'torch {torch}' if torch else 'no torch'}, Python {platform.python_version()})"
        )
        raise typer.Exit


def _wherry(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
