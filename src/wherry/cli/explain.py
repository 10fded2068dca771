"""`wherry explain`: a pasted traceback or a log, explained. Imports no torch and runs nothing of the program."""

from __future__ import annotations

import codecs
import json
import sys
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from wherry.cli._console import Command, Status, complain, out

_MOST_BYTES = 4 << 20  # of a log, from its end: what ended a program stands there
_CHUNK = 1 << 20


def explain(
    log: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help='A file, or "-" for stdin. [dim]Default: stdin.[/]', show_default=False),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the program's files are. [dim]Default: where the log says, or here.[/]"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as a JSON object.")] = False,
) -> None:
    """Explain the device error in a log: which tensor was not moved, and why.

    Reads a pasted traceback, or a whole log with one in it, and the source
    files that it names; needs neither torch nor the device. Exit status 1 if
    there is no device error in it.

      wherry explain train.log
      python train.py 2>&1 | wherry explain
      wherry explain --root ~/project slurm-1234.out
    """
    if root is not None and not root.is_dir():
        complain(f"--root {root} is no folder.")
        raise typer.Exit(Status.MISUSE)
    text = _read(log)
    if not text.strip():
        where = "stdin" if log in (None, "-") else str(log)
        hint = " Errors go to stderr: python train.py 2>&1 | wherry explain." if where == "stdin" else ""
        complain(f"{where} is empty.{hint}")
        raise typer.Exit(Status.MISUSE)

    from wherry.explain import text as texts  # after the checks: they should answer at once
    from wherry.explain.log import explain_log

    found = explain_log(text, root)
    if found is None:
        where = "this text" if log in (None, "-") else str(log)
        complain(
            f"There is no device error in {where}. It should hold the whole traceback, down to the error's own line."
        )
        raise typer.Exit(Status.FAILED)
    if as_json:
        site = None if found.site is None else found.site.to_json()
        print(json.dumps({"error": found.error, "site": site, **found.to_json()}, indent=2))  # noqa: T201 - the answer itself
        return
    texts.show(found, out())


def _read(log: str | None) -> str:
    """The log's text. Ends the command where there is none."""
    try:
        if log is None or log == "-":
            if log is None and sys.stdin.isatty():
                complain(
                    "Give a log: wherry explain FILE, or pipe one in. To paste one: wherry explain -, then Ctrl-D."
                )
                raise typer.Exit(Status.MISUSE)
            return _decoded(_end_of(sys.stdin.buffer))
        with Path(log).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_BYTES))
            return _decoded(file.read(_MOST_BYTES))
    except FileNotFoundError:
        complain(f"There is no file {log}.")
    except OSError as err:
        complain(f"{log or 'stdin'} cannot be read: {err.strerror or err}.")
    raise typer.Exit(Status.MISUSE)


def _end_of(stream: BinaryIO) -> bytes:
    """The last of a stream that may be long."""
    kept = b""
    while chunk := stream.read(_CHUNK):
        kept = (kept + chunk)[-_MOST_BYTES:]
    return kept


def _decoded(data: bytes) -> str:
    # PowerShell's ">" writes UTF-16.
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


COMMAND = Command(explain, position=25)
