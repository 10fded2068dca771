"""Headers of .safetensors files: what a right one lists, and what is said of a wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wherry import where
from wherry.errors import BadCheckpoint


def write(path: Path, header: object, *, data: int = 0, length: int | None = None) -> str:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + bytes(data))
    return str(path)


def tensor(begin: int, end: int, shape: list[Any] | None = None, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def test_names_dtypes_shapes_and_bytes(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "a.weight": tensor(0, 24, [2, 3]), "b": tensor(24, 26, [], "BF16")}

    found = where(write(tmp_path / "m.safetensors", header, data=26))

    assert [(e.path, e.dtype, e.shape, e.nbytes, e.device) for e in found] == [
        ("checkpoint['a.weight']", "float32", (2, 3), 24, "cpu"),
        ("checkpoint['b']", "bfloat16", (), 2, "cpu"),
    ]
    assert found.nbytes == 26
    assert found.notes == ("metadata: format = pt",)


def test_an_empty_tensor_and_one_of_half_bytes(tmp_path: Path) -> None:
    header = {"none": tensor(0, 0, [0, 5]), "halves": tensor(0, 2, [3], "F4")}

    assert where(write(tmp_path / "m.safetensors", header, data=2)).nbytes == 2


WRONG: dict[str, tuple[Any, dict[str, int], str]] = {
    "length beyond the file": (
        {},
        {"length": 5000},
        "its header has 5,000 bytes and would end at byte 5,008, but the file ends at 10",
    ),
    "length of another format": (
        {},
        {"length": 2**63},
        "its first 8 bytes say that the header has 9,223,372,036,854,775,808 bytes",
    ),
    "length of zero": ({}, {"length": 0}, "its first 8 bytes say that the header has 0 bytes"),
    "no JSON": (b"{]", {}, "its header is no JSON: Expecting property name"),
    "no UTF-8": (b'{"\xff":1}', {}, "its header is no UTF-8 at byte 10"),
    "a list": ([], {}, "its header is a JSON list, not an object"),
    "not a number": (b'{"a": NaN}', {}, "its header is no JSON: NaN is no number"),
    "nested without end": (b'{"a":' + b"[" * 100_000, {}, "its header is nested deeper than any of safetensors"),
    "a number without end": (b'{"a": ' + b"9" * 5000 + b"}", {}, "its header is no JSON: Exceeds the limit"),
    "a key twice": (b'{"a": {}, "a": {}}', {}, "its header has the key 'a' twice"),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, {}, "its __metadata__ is no object of strings"),
    "no object": ({"a": 3}, {}, "its tensor 'a' is described by a JSON int, not an object"),
    "unknown dtype": (
        {"a": tensor(0, 4, dtype="F33")},
        {"data": 4},
        "its tensor 'a' has the dtype 'F33', which safetensors does not have",
    ),
    "negative size": (
        {"a": tensor(0, 4, [-1])},
        {"data": 4},
        "its tensor 'a' has the shape [-1], which is no list of sizes",
    ),
    "negative offset": (
        {"a": tensor(-4, 0, [1])},
        {"data": 4},
        "its tensor 'a' has the offsets [-4, 0], which are no two positions in the file",
    ),
    "truth for a size": (
        {"a": tensor(0, 4, [True])},
        {"data": 4},
        "its tensor 'a' has the shape [True], which is no list of sizes",
    ),
    "backwards": ({"a": tensor(8, 4, [1])}, {"data": 8}, "its tensor 'a' begins at 8 and ends before that, at 4"),
    "out of the file": (
        {"a": tensor(0, 40)},
        {"data": 8},
        "its tensor 'a' ends at byte 40 of the data, of which the file has 8",
    ),
    "another size": ({"a": tensor(0, 8, [3])}, {"data": 8}, "its tensor 'a' takes 12 bytes as 3 of F32, but has 8"),
    "overlap": (
        {"a": tensor(0, 8), "b": tensor(4, 12)},
        {"data": 12},
        "its tensors 'a' and 'b' overlap at byte 4 of the data",
    ),
    "overlap behind a neighbour": (
        {"a": tensor(0, 40), "b": tensor(40, 44), "c": tensor(8, 12)},
        {"data": 44},
        "its tensors 'a' and 'c' overlap at byte 8 of the data",
    ),
    "a hole": ({"a": tensor(0, 4), "b": tensor(8, 12)}, {"data": 12}, "4 bytes before its tensor 'b' belong to none"),
    "bytes of nobody": ({"a": tensor(0, 4)}, {"data": 12}, "8 bytes at its end belong to no tensor"),
}


@pytest.mark.parametrize(("header", "options", "reason"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(header: Any, options: dict[str, int], reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", header, **options)

    with pytest.raises(BadCheckpoint) as raised:
        where(path)

    assert raised.value.reason.startswith(reason)
    assert str(raised.value).startswith(f"{path}: ")


def test_shorter_than_its_length(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"abc")

    with pytest.raises(BadCheckpoint, match="it has 3 bytes, fewer than the 8"):
        where(path)


def test_five_gigabytes_take_no_memory(tmp_path: Path) -> None:
    size = 5 * 2**30
    path = Path(write(tmp_path / "m.safetensors", {"a": tensor(0, size)}))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)

    assert where(path).nbytes == size
