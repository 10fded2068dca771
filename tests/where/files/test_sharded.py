"""Checkpoints in several files, and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from wherry import where
from wherry.errors import BadCheckpoint


def shards(folder: Path, names: dict[str, Any] | None = None) -> Path:
    torch.save({"a": torch.ones(2)}, folder / "one.bin")
    torch.save({"b.c": torch.ones(3)}, folder / "two.bin")
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.bin", "b.c": "two.bin"} if names is None else names}))
    return index


def test_an_index_is_all_its_files(tmp_path: Path) -> None:
    found = where(shards(tmp_path))

    assert [(e.path, e.nbytes) for e in found] == [("checkpoint['a']", 8), ("checkpoint['b.c']", 12)]
    assert found.title == "2 files"


def test_a_folder_is_its_index(tmp_path: Path) -> None:
    index = shards(tmp_path)

    assert where(tmp_path).name == str(index)


def test_a_folder_is_its_only_checkpoint(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "model.pt")
    (tmp_path / "config.json").write_text("{}")

    assert where(tmp_path).nbytes == 8


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a file that lacks it": ({"a": "one.bin", "z": "two.bin"}, "'z' should be in 'two.bin', and is not"),
    "a file elsewhere": ({"a": "../one.bin"}, "it names '../one.bin', which is no file beside it"),
    "the folder above": ({"a": ".."}, "it names '..', which is no file beside it"),
    "itself": (
        {"a": "pytorch_model.bin.index.json"},
        "it names 'pytorch_model.bin.index.json', which is no file beside it",
    ),
    "a number": ({"a": 1}, "it has no weight_map that says which tensor is in which file"),
}


@pytest.mark.parametrize(("names", "reason"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(names: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint) as raised:
        where(shards(tmp_path, names))

    assert raised.value.reason == reason


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    index = shards(tmp_path)
    (tmp_path / "two.bin").unlink()

    with pytest.raises(FileNotFoundError, match="two.bin: there is no such file"):
        where(index)


def test_a_folder_whose_index_names_a_shard_that_is_missing(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / "two.bin").unlink()

    with pytest.raises(FileNotFoundError, match="two.bin: there is no such file"):
        where(tmp_path)


def test_an_index_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "m.index.json").write_text("{")

    with pytest.raises(BadCheckpoint, match="it is no JSON"):
        where(tmp_path / "m.index.json")


def test_a_folder_with_several_or_none(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="it is a folder without a checkpoint"):
        where(tmp_path)
    for name in ("a.pt", "b.pt"):
        torch.save(1, tmp_path / name)
    with pytest.raises(BadCheckpoint, match=r"it is a folder with 2 checkpoints. Name one of a.pt, b.pt"):
        where(tmp_path)
