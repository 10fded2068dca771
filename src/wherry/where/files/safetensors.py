"""A .safetensors file, by its header: eight bytes of length, then JSON, then the data, which is not read.

    {"__metadata__": {str: str}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}

Everything is checked before it is believed, in the order in which it is read: the length against the file, the JSON, each
entry, and then that the tensors lie side by side, neither overlapping nor leaving room, until the end of the file.

Source: safetensors 0.8, README "Format", and safetensors/src/tensor.rs, `SafeTensors::read_metadata` and `Metadata::validate`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from wherry.errors import BadCheckpoint
from wherry.where.files.listed import Listed, Saved, Storage

_MOST = 100_000_000  # bytes of a header, as in safetensors

# The dtypes of safetensors as torch calls them, and their bits.
_DTYPES = {
    "BOOL": ("bool", 8), "U8": ("uint8", 8), "I8": ("int8", 8), "U16": ("uint16", 16), "I16": ("int16", 16),
    "U32": ("uint32", 32), "I32": ("int32", 32), "U64": ("uint64", 64), "I64": ("int64", 64),
    "F16": ("float16", 16), "BF16": ("bfloat16", 16), "F32": ("float32", 32), "F64": ("float64", 64), "C64": ("complex64", 64),
    "F8_E4M3": ("float8_e4m3fn", 8), "F8_E5M2": ("float8_e5m2", 8), "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8), "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "F4": ("float4_e2m1fn", 4), "F6_E2M3": ("float6_e2m3", 6), "F6_E3M2": ("float6_e3m2", 6),
}  # fmt: skip


def read(path: str) -> Listed:
    """What is in a .safetensors file.

    Raises:
        BadCheckpoint: naming what is wrong, and where.
    """
    header, room = _header(path)
    tensors: dict[str, Saved] = {}
    ranges: list[tuple[int, int, str]] = []
    notes: tuple[str, ...] = ()
    for name, value in header.items():
        if name == "__metadata__":
            if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
                raise BadCheckpoint(path, "its __metadata__ is no object of strings")
            if value:
                notes = ("metadata: " + ", ".join(f"{k} = {str(v)[:80]}" for k, v in list(value.items())[:10]),)
            continue
        dtype, shape, begin, end = _entry(path, name, value, room)
        ranges.append((begin, end, name))
        storage = Storage(name, "cpu", end - begin, dtype)
        tensors[name] = Saved((storage,), dtype, shape)
    _check_ranges(path, sorted(ranges), room)
    return Listed(path, "safetensors", tensors, notes)


def _header(path: str) -> tuple[dict[str, Any], int]:
    """The JSON, and how many bytes of data there are."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            raise BadCheckpoint(path, f"it has {len(start)} bytes, fewer than the 8 that say how long its header is")
        length = int.from_bytes(start, "little")
        if length > _MOST or length < 2:
            raise BadCheckpoint(
                path, f"its first 8 bytes say that the header has {length:,} bytes, which no safetensors file has",
                fix="It is another format, or damaged.",
            )  # fmt: skip
        if 8 + length > size:
            raise BadCheckpoint(
                path, f"its header has {length:,} bytes and would end at byte {8 + length:,}, but the file ends at {size:,}",
                fix="It is truncated: fetch it again.",
            )  # fmt: skip
        text = file.read(length)
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as err:
        raise BadCheckpoint(path, f"its header is no UTF-8 at byte {8 + err.start:,}") from err
    except _Twice as err:
        raise BadCheckpoint(path, f"its header has the key {err.key!r} twice") from None
    except json.JSONDecodeError as err:
        raise BadCheckpoint(path, f"its header is no JSON: {err.msg} at character {err.pos:,}") from err
    except RecursionError:
        raise BadCheckpoint(path, "its header is nested deeper than any of safetensors") from None
    except ValueError as err:
        raise BadCheckpoint(path, f"its header is no JSON: {err}") from err
    if not isinstance(header, dict):
        raise BadCheckpoint(path, f"its header is a JSON {type(header).__name__}, not an object")
    return header, size - 8 - length


class _Twice(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Twice(key[:100])
        made[key] = value
    return made


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _entry(path: str, name: str, value: Any, room: int) -> tuple[str, tuple[int, ...], int, int]:
    """One tensor: dtype, shape, and where its bytes begin and end."""

    def bad(what: str) -> BadCheckpoint:
        return BadCheckpoint(path, f"its tensor {name[:100]!r} {what}")

    if not isinstance(value, dict):
        raise bad(f"is described by a JSON {type(value).__name__}, not an object")
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise bad(f"has the dtype {str(dtype)[:40]!r}, which safetensors does not have")
    if not isinstance(shape, list) or not all(_is_size(n) for n in shape):
        raise bad(f"has the shape {str(shape)[:60]}, which is no list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(n) for n in offsets):
        raise bad(f"has the offsets {str(offsets)[:60]}, which are no two positions in the file")
    begin, end = offsets
    if begin > end:
        raise bad(f"begins at {begin:,} and ends before that, at {end:,}")
    if end > room:
        raise bad(f"ends at byte {end:,} of the data, of which the file has {room:,}")
    torchs, bits = _DTYPES[dtype]
    needed = -(-math.prod(shape) * bits // 8)
    if needed != end - begin:
        sizes = "x".join(map(str, shape)) or "0-dim"
        raise bad(f"takes {needed:,} bytes as {sizes} of {dtype}, but has {end - begin:,}")
    return torchs, tuple(shape), begin, end


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _check_ranges(path: str, ranges: list[tuple[int, int, str]], room: int) -> None:
    """Side by side, from the first byte of the data to the last."""
    furthest, last = 0, None
    for begin, end, name in ranges:
        if begin < furthest:
            raise BadCheckpoint(
                path, f"its tensors {str(last)[:100]!r} and {name[:100]!r} overlap at byte {begin:,} of the data"
            )
        if begin > furthest:
            raise BadCheckpoint(path, f"{begin - furthest:,} bytes before its tensor {name[:100]!r} belong to none")
        furthest, last = end, name
    if furthest != room:
        raise BadCheckpoint(path, f"{room - furthest:,} bytes at its end belong to no tensor")
