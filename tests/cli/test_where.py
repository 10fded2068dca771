"""`wherry where`: the table people read, the JSON programs read, the exit status, and that torch is not needed."""

from __future__ import annotations

import json
import sys
import zipfile

import pytest
import torch

pytestmark = pytest.mark.slow  # each is a process


def test_what_is_in_a_checkpoint(folder):
    torch.save({"model": {"lin.weight": torch.ones(256, 4)}, "epoch": 3}, folder.path / "a.pt")

    done = folder.wherry("where", "a.pt")

    assert done.status == 0
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        "a.pt  torch.save  1 tensor, 4 KiB on cpu, float32",
        "",
        "                             shape  dtype    device  bytes",
        "  checkpoint              1 tensor  float32  cpu     4 KiB  dict",
        "    ['model'] lin.weight     256x4  float32  cpu     4 KiB  saved",
    ]


def test_several_as_json(folder):
    for name in ("a.pt", "b.pt"):
        torch.save({"w": torch.ones(2)}, folder.path / name)

    done = folder.wherry("where", "a.pt", "b.pt", "--json")

    found = json.loads(done.stdout)
    assert [one["name"] for one in found] == ["a.pt", "b.pt"]
    assert found[0]["entries"][0]["path"] == "checkpoint['w']"
    assert found[0]["nbytes"] == 8


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(folder):
    torch.save({"w": torch.ones(2)}, folder.path / "a.pt")
    folder.write("b.pt", "no checkpoint")

    done = folder.wherry("where", "b.pt", "a.pt")

    assert done.status == 2
    assert done.stderr.startswith("wherry: b.pt: it is no checkpoint")
    assert done.stdout.startswith("a.pt")


def test_a_file_does_not_steer_the_terminal(folder):
    """Names, metadata and errors of a downloaded file: no colours, no cursor, no title, no line of its own."""
    evil = "v\x1b]0;owned\x07\x1b[2J\x9b31m\nfake line\u202e"
    header = json.dumps({
        "__metadata__": {"k" + evil: evil},
        f"w.{evil}": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    }).encode()  # fmt: skip
    (folder.path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with zipfile.ZipFile(folder.path / "b\x1b[2J.pt", "w") as archive:
        archive.writestr(evil, b"")
    torch.save({evil: torch.ones(1)}, folder.path / "c.pt")

    done = folder.wherry("where", "a.safetensors", "b\x1b[2J.pt", "c.pt")
    as_json = folder.wherry("where", "a.safetensors", "c.pt", "--json")

    for text in (done.stdout, done.stderr, as_json.stdout):
        assert all(line.isprintable() for line in text.split("\n"))
        assert not any(line.startswith("fake") for line in text.split("\n"))
    assert r"metadata: kv\x1b]0;owned\x07\x1b[2J\x9b31m\nfake line\u202e = v\x1b" in " ".join(done.stdout.split())
    assert r"b\x1b[2J.pt: it is a zip archive" in done.stderr
    assert json.loads(as_json.stdout)[1]["entries"][0]["path"] == f"checkpoint[{evil!r}]"


def test_all_shows_every_tensor(folder):
    torch.save([torch.ones(2) for _ in range(60)], folder.path / "a.pt")

    few, every = folder.wherry("where", "a.pt"), folder.wherry("where", "a.pt", "--all")

    assert "[0..59]  x 60" in few.stdout
    assert "[59]" in every.stdout


def test_torch_is_not_imported(folder):
    torch.save({"w": torch.ones(2)}, folder.path / "a.pt")
    program = "import sys; sys.argv = ['wherry', 'where', 'a.pt']; from wherry.cli import app; app()({})"

    done = folder.python(
        "-c", program.format("standalone_mode=False") + "; print('torch' in sys.modules, 'rich' in sys.modules)"
    )

    assert done.stdout.splitlines()[-1] == "False True"
    assert sys.modules["torch"]
