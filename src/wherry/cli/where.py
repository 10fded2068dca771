"""`wherry where`: what is in a checkpoint file, read from its headers. Imports no torch and runs nothing of the file."""

from __future__ import annotations

from typing import Annotated

import typer

from wherry.cli._console import Command, Status, complain, out
from wherry.errors import BadCheckpoint
from wherry.where.files import read
from wherry.where.inventory import Inventory
from wherry.where.printable import printable, printable_json

_MORE = "Not everything is shown: --depth N goes deeper, --all shows every tensor."


def where(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="A .pt or .safetensors file, the index of a sharded one, or a folder.",
            show_default=False,
        ),
    ],
    depth: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="How deep to go. [dim]Default: what fits a screen.[/]", show_default=False
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every tensor, and fold nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, one object for each file.")] = False,
) -> None:
    """Say what is in a checkpoint: tensors, bytes, and the devices they were saved from.

    Reads headers only, however large the file, and runs nothing of it: a
    pickle that names more than tensors is refused. Exit status 2 if a file
    cannot be read.

      wherry where model.safetensors
      wherry where checkpoint.pt --depth 3
      wherry where epoch-*.pt --json
    """
    found: list[Inventory] = []
    failed = False
    for file in files:
        try:
            found.append(read(file))
        except BadCheckpoint as err:
            complain(printable(str(err)))
            failed = True
    if as_json:
        print(printable_json([one.to_json() for one in found]))  # noqa: T201 - the answer itself
    else:
        from wherry.where.text import draw

        console = out()
        for number, one in enumerate(found):
            if number:
                console.print()
            console.print(draw(one, depth=depth, every=every, width=console.width, more=_MORE), highlight=False)
    if failed:
        raise typer.Exit(Status.MISUSE)


COMMAND = Command(where, position=40)
