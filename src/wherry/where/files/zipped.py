"""What torch.save writes: a zip archive of a pickle and one record for each storage; and the older format, one pickle after
another with the data behind them.

Of the archive, the directory at its end and the pickle are read. A record's size must be what the pickle says of it.

Source: torch/serialization.py, `_save`, `_legacy_save` and `_legacy_load` (2.6 to 2.14); caffe2/serialize/inline_container.cc.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

from wherry.errors import BadCheckpoint
from wherry.where.files import unpickled
from wherry.where.files.listed import Listed, Storage
from wherry.where.printable import printable

_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the older format
_MOST = 512 * 2**20  # bytes of a pickle: more than the names of any model take


def read(path: str) -> Listed:
    """What is in a zip archive of torch.save.

    Raises:
        BadCheckpoint: it is damaged, is another archive, or would run code.
    """
    size = Path(path).stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            records = {info.filename: info for info in archive.infolist()}
            pickles = [name for name in records if name.count("/") == 1 and name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise _other(path, records)
            folder = pickles[0].removesuffix("data.pkl")
            if f"{folder}constants.pkl" in records or any(name.startswith(f"{folder}code/") for name in records):
                raise BadCheckpoint(
                    path, "it is a TorchScript archive, which holds a program",
                    fix="Save its tensors alone: torch.save(torch.jit.load(path).state_dict(), ...).",
                )  # fmt: skip
            info = records[pickles[0]]
            if info.file_size > (_MOST if info.compress_type == zipfile.ZIP_STORED else _MOST // 16):
                raise BadCheckpoint(
                    path, f"its pickle has {info.file_size:,} bytes, more than the names of any model take"
                )

            def size_of(key: str) -> int | None:
                record = records.get(f"{folder}data/{key}")
                return None if record is None else min(record.file_size, size - record.header_offset)

            pickled = io.BytesIO(archive.read(info))
            value = unpickled.load(pickled, path, {}, size_of)
    except zipfile.BadZipFile as err:
        raise BadCheckpoint(
            path, f"it is a damaged zip archive ({printable(str(err).rstrip('.'))})",
            fix="The directory of an archive is at its end: if that is missing, the file is truncated.",
        ) from err  # fmt: skip
    except (OSError, NotImplementedError, RuntimeError, EOFError, ValueError, OverflowError) as err:
        if isinstance(err, BadCheckpoint):
            raise
        raise BadCheckpoint(path, f"it is a damaged zip archive ({printable(str(err)[:80])})") from err
    return Listed(path, "torch.save", value)


def _other(path: str, records: dict[str, Any]) -> BadCheckpoint:
    if any("archive_format" in name or name.startswith("models/") for name in records):
        return BadCheckpoint(
            path, "it is an archive of torch.export, which holds a program", fix="Load it with torch.export.load."
        )
    some = printable(", ".join(name[:100] for name in list(records)[:3]))
    return BadCheckpoint(
        path, f"it is a zip archive, but none of torch.save: it has no data.pkl (it has {some or 'nothing'})"
    )


def read_legacy(path: str) -> Listed:
    """What is in a file of the format before zip archives (`_use_new_zipfile_serialization=False`).

    Raises:
        BadCheckpoint: it is damaged, another pickle, or would run code.
    """
    storages: dict[str, Storage] = {}
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        magic = unpickled.load(file, path, storages)
        if magic != _MAGIC:
            raise BadCheckpoint(
                path,
                "it is a pickle, but none of torch.save",
                fix="Save the tensors in it with torch.save, or with safetensors.",
            )
        for _ in ("protocol", "system"):
            unpickled.load(file, path, storages)
        value = unpickled.load(file, path, storages)
        keys = unpickled.load(file, path, storages)
        needed = file.tell() + sum(8 + storage.nbytes for storage in storages.values())
    if not isinstance(keys, list) or not all(key in keys for key in storages):
        raise BadCheckpoint(path, "the list of its storages does not name all that its tensors need")
    if needed > size:
        raise BadCheckpoint(
            path,
            f"its tensors need {needed:,} bytes, but the file ends at {size:,}",
            fix="It is truncated: fetch it again.",
        )
    return Listed(path, "torch.save, older format", value)
