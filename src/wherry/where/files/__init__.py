"""A checkpoint file -> Inventory, from its headers: no tensor data is read, nothing of the file is run.

    safetensors  the JSON header, by hand
    zipped       what torch.save writes: a zip archive with a pickle, and the older format
    unpickled    that pickle, read with stand-ins for what `weights_only` allows; all else is refused
    sharded      an index of several files, or a folder
    listed       what these found -> Inventory

None of it imports torch. What a file is, is told by its first bytes rather than its name.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from wherry.errors import BadCheckpoint, CheckpointMissing
from wherry.where.files.listed import Listed, inventory
from wherry.where.inventory import Inventory


def read(path: str) -> Inventory:
    """The inventory of a checkpoint: a file, an index of shards, or a folder that has one.

    Raises:
        BadCheckpoint: it is none, is damaged, or would run code.
        CheckpointMissing: there is no such file.
    """
    listed = look(path)
    return inventory(listed)


def look(path: str) -> Listed:
    """What is in a checkpoint."""
    from wherry.where.files import safetensors, sharded, zipped

    start = _start(path)
    if start is None:
        return sharded.read_folder(path)
    if not start:
        raise BadCheckpoint(path, "it is empty")
    if path.endswith(".index.json"):
        return sharded.read_index(path)
    if start[:4] == b"PK\x03\x04":
        return zipped.read(path)
    if path.endswith(".safetensors") or start[8:9] == b"{":
        return safetensors.read(path)
    if start[257:262] == b"ustar":
        raise BadCheckpoint(
            path, "it is a tar archive, as torch before 0.4 wrote them",
            fix="Load it with a torch of that time, and save it again with torch.save.",
        )  # fmt: skip
    if start[:1] == b"\x80":
        return zipped.read_legacy(path)
    if start[:2] == b"PK":
        raise BadCheckpoint(path, "it is an empty or damaged zip archive")
    raise BadCheckpoint(
        path, "it is no checkpoint: neither a zip archive or pickle, as torch.save writes them, nor safetensors"
    )


def _start(path: str) -> bytes | None:
    """How a file begins; None where it is a folder."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib keeps some errors for itself
        if stat.S_ISREG(mode):
            with Path(path).open("rb") as file:
                return file.read(512)
    except FileNotFoundError:
        folder = Path(path).parent
        near = [str(p) for p in folder.iterdir() if p.suffix == Path(path).suffix] if folder.is_dir() else []
        raise CheckpointMissing(path, near=near) from None
    except OSError as err:
        raise BadCheckpoint(path, f"it cannot be read ({err.strerror or err})") from err
    except ValueError as err:
        raise BadCheckpoint(path, f"it is no name of a file ({err})") from err
    if stat.S_ISDIR(mode):
        return None
    # To open it, or to read it, could wait for ever.
    raise BadCheckpoint(path, f"it is {_special(mode)}, not a file")


def _special(mode: int) -> str:
    """What is in the place of a file."""
    for is_one, name in ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket")):
        if is_one(mode):
            return name
    return "a device"
