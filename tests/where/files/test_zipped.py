"""What torch.save writes, in both formats: everything is listed without reading data, and nothing in it runs."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import tracemalloc
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import wherry
from wherry import where
from wherry.errors import BadCheckpoint, CheckpointMissing

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "older"])


def save(value: Any, path: Path, *, zipped: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


def facts(path: Path) -> dict[str, tuple[Any, ...]]:
    return {e.path: (e.device, e.dtype, e.shape, e.nbytes, e.note) for e in where(path)}


@FORMATS
@pytest.mark.parametrize("value", [3, 2.5, True, None, "abc", {1, 2}, torch.float16])
def test_a_checkpoint_without_tensors_has_none(tmp_path: Path, value: Any, *, zipped: bool) -> None:
    inventory = where(save(value, tmp_path / "value.pt", zipped=zipped))

    assert (inventory.tensors, inventory.nbytes) == (0, 0)


@FORMATS
@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_tensor(tmp_path: Path, *, zipped: bool) -> None:
    whole = torch.ones(100)
    value = {
        "model": OrderedDict({"layers.0.weight": torch.ones(2, 3), "layers.0.bias": nn.Parameter(torch.ones(2))}),
        "view": whole[:3],
        "expanded": torch.ones(1).expand(50),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "unsigned": torch.ones(2, dtype=torch.uint16),
        "float8": torch.ones(2).to(torch.float8_e4m3fn),
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.sparse_csr_tensor([0, 1, 1], [0], [1.0], size=(2, 2)),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8),
        "meta": torch.empty(5, device="meta"),
        "rest": [
            1,
            "two",
            None,
            1.5,
            1 + 2j,
            b"six",
            {7},
            torch.Size([8]),
            torch.float16,
            torch.device("cuda:0"),
            (9,),
        ],
    }

    assert facts(save(value, tmp_path / "a.pt", zipped=zipped)) == {
        "checkpoint['model']['layers.0.weight']": ("cpu", "float32", (2, 3), 24, ""),
        "checkpoint['model']['layers.0.bias']": ("cpu", "float32", (2,), 8, ""),
        "checkpoint['view']": ("cpu", "float32", (3,), 400, ""),
        "checkpoint['expanded']": ("cpu", "float32", (50,), 4, ""),
        "checkpoint['half']": ("cpu", "bfloat16", (2,), 4, ""),
        "checkpoint['unsigned']": ("cpu", "uint16", (2,), 4, ""),
        "checkpoint['float8']": ("cpu", "float8_e4m3fn", (2,), 2, ""),
        "checkpoint['coo']": ("cpu", "float32", (3, 3), 2 * 3 * 8 + 3 * 4, "sparse_coo"),
        "checkpoint['csr']": ("cpu", "float32", (2, 2), 3 * 8 + 8 + 4, "sparse_csr"),
        "checkpoint['quantized']": ("cpu", "qint8", (3,), 3, "quantized"),
        "checkpoint['meta']": ("meta", "float32", (5,), 0, ""),
    }


@FORMATS
def test_devices_are_those_that_were_saved_from(tmp_path: Path, *, zipped: bool) -> None:
    with wherry.rehearse("cuda", count=2):
        save([torch.ones(2, device="cuda:1"), torch.ones(3)], tmp_path / "a.pt", zipped=zipped)

    assert [(e.device, e.nbytes) for e in where(tmp_path / "a.pt")] == [("cuda:1", 8), ("cpu", 12)]


@FORMATS
def test_tied_and_aliases(tmp_path: Path, *, zipped: bool) -> None:
    whole = torch.ones(10)

    found = where(save({"a": whole, "b": whole, "c": whole[2:]}, tmp_path / "a.pt", zipped=zipped))

    assert found.nbytes == 40
    assert [shared.paths for shared in found.tied] == [("checkpoint['a']", "checkpoint['b']")]
    assert [shared.paths for shared in found.aliases] == [("checkpoint['a']", "checkpoint['c']")]


def test_states_of_an_optimizer(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()

    found = where(save({"optimizer": optimizer.state_dict()}, tmp_path / "a.pt"))

    assert "checkpoint['optimizer']['state'][0]['exp_avg']" in {e.path for e in found}
    assert found.nbytes == 2 * (4 + 2) * 4 + 2 * 4


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@FORMATS
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path: Path, *, zipped: bool) -> None:
    mark = tmp_path / "ran"
    path = save({"w": torch.ones(1), "x": Bomb(mark)}, tmp_path / "a.pt", zipped=zipped)

    with pytest.raises(
        BadCheckpoint, match=rf"loading it would run code or classes: {os.system.__module__}.system, which"
    ):
        where(path)
    assert not mark.exists()

    torch.load(path, weights_only=False)
    assert mark.exists()  # the twin: it would have


@FORMATS
def test_a_whole_model_is_refused_by_its_classes(tmp_path: Path, *, zipped: bool) -> None:
    path = save(nn.Sequential(nn.Linear(1, 1)), tmp_path / "a.pt", zipped=zipped)

    with pytest.raises(BadCheckpoint) as raised:
        where(path)

    assert str(raised.value) == (
        f"{path}: it is a whole pickled model, and loading it would run code of torch.nn.modules.container.Sequential, "
        "torch.nn.modules.linear.Linear, which torch.load(weights_only=True) does not allow. Where you trust it, load it with "
        "torch.load(..., weights_only=False) and save tensors alone: torch.save(model.state_dict(), ...)."
    )


class Tagged(torch.Tensor):
    """A class of a program."""


@FORMATS
def test_a_tensor_of_a_class_of_the_program_is_called_that(tmp_path: Path, *, zipped: bool) -> None:
    """A whole model it is not."""
    path = save({"w": torch.ones(2).as_subclass(Tagged)}, tmp_path / "a.pt", zipped=zipped)

    with pytest.raises(BadCheckpoint) as raised:
        where(path)

    assert str(raised.value) == (
        f"{path}: it holds a tensor of the class {Tagged.__module__}.Tagged, whose code would have to run to load it, which "
        "torch.load(weights_only=True) does not allow. Where you trust it, load it with torch.load(..., weights_only=False) "
        "and save plain tensors: tensor.as_subclass(torch.Tensor)."
    )


class Settings:
    """Another one."""


def test_an_object_of_the_program_makes_no_whole_model(tmp_path: Path) -> None:
    path = save({"w": torch.ones(2), "args": Settings()}, tmp_path / "a.pt")

    with pytest.raises(
        BadCheckpoint, match=rf"loading it would run code or classes: {Settings.__module__}.Settings, which"
    ):
        where(path)


@pytest.mark.filterwarnings("ignore")
@FORMATS
def test_a_jagged_tensor_is_its_values_and_offsets(tmp_path: Path, *, zipped: bool) -> None:
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)

    path = save({"a": jagged, "b": jagged}, tmp_path / "a.pt", zipped=zipped)

    assert facts(path) == {"checkpoint['a']": ("cpu", "float32", None, 5 * 4 + 3 * 8, "NestedTensor")}
    assert torch.load(path, weights_only=True)["a"].is_nested  # so it is not refused here


@FORMATS
def test_what_hangs_in_a_tensor_is_listed(tmp_path: Path, *, zipped: bool) -> None:
    param, plain = nn.Parameter(torch.ones(2)), torch.ones(3)
    param.tag = torch.ones(5)
    param._private = torch.ones(7)
    plain.more = [torch.ones(1), {"x": param}]

    path = save({"p": param, "l.q": plain}, tmp_path / "a.pt", zipped=zipped)

    assert facts(path) == {
        "checkpoint['p']": ("cpu", "float32", (2,), 8, ""),
        "checkpoint['p'].tag": ("cpu", "float32", (5,), 20, ""),
        "checkpoint['l.q']": ("cpu", "float32", (3,), 12, ""),
        "checkpoint['l.q'].more[0]": ("cpu", "float32", (1,), 4, ""),
    }
    assert [entry.path for entry in where(save(param, path, zipped=zipped))] == ["checkpoint", "checkpoint.tag"]


def archive(path: Path, pickled: bytes, **records: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a/data.pkl", pickled)
        for name, data in records.items():
            made.writestr(f"a/data/{name}", data)
    return path


def tensor(numel: int, *, offset: int = 0, size: tuple[int, ...] = (2,), stride: tuple[int, ...] = (1,)) -> bytes:
    """The pickle of a tensor over the record "0"."""
    file = io.BytesIO()

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", numel) if obj == "here" else None

    class Tensor:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, ("here", offset, size, stride, False, OrderedDict())

    Pickler(file, protocol=2).dump(Tensor())
    return file.getvalue()


def test_an_archive_made_by_hand(tmp_path: Path) -> None:
    """The twin of those below."""
    assert where(archive(tmp_path / "a.pt", tensor(2), **{"0": bytes(8)})).nbytes == 8


_MANY = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\xff\xff\xff\xff\x7f\x85Rr\x00\x00\x00\x00cos\nsystem\n."

WRONG: dict[str, tuple[bytes, dict[str, bytes], str]] = {
    "a record that is missing": (tensor(2), {}, "it has no record '0', which a tensor of it needs"),
    "a record too short": (tensor(2), {"0": bytes(4)}, "its record '0' has 4 bytes, where a tensor needs 8"),
    "a tensor beyond its storage": (
        tensor(2, offset=1),
        {"0": bytes(8)},
        "its pickle is damaged (ValueError: a tensor reaches to element 3",
    ),
    "a negative size": (
        tensor(2, size=(-2,)),
        {"0": bytes(8)},
        "its pickle is damaged (ValueError: (-2,) are no sizes)",
    ),
    "a negative storage": (tensor(-2), {"0": bytes(8)}, "it describes a storage without a key, a device and a size"),
    "no end": (b"\x80\x02}q\x00", {}, "its pickle ends too early"),
    "nothing on the stack": (b"\x80\x02.", {}, "its pickle is damaged"),
    "a memo without end": (b"\x80\x02}r\xff\xff\xff\xffh\x01.", {}, "its pickle is damaged"),
    "an end in a number": (pickle.dumps({"a": 1}, 2)[:-3], {}, "its pickle is damaged"),
    "an attribute for a number": (
        b"\x80\x02K\x01}b.",
        {},
        "loading it would run code or classes: the state of a int (dict)",
    ),
    "a class by its number": (b"\x80\x02\x82\x01.", {}, "loading it would run code or classes: a class by its number"),
    "many bytes out of nothing": (_MANY, {}, "loading it would run code or classes: os.system"),
}


@pytest.mark.parametrize(("pickled", "records", "reason"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(pickled: bytes, records: dict[str, bytes], reason: str, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadCheckpoint) as raised:
            where(archive(tmp_path / "a.pt", pickled, **records))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert raised.value.reason.startswith(reason)
    assert peak < 2**20


@pytest.mark.slow
@FORMATS
def test_any_truncation_is_noticed(tmp_path: Path, *, zipped: bool) -> None:
    whole = save({"a": torch.ones(3), "b": [torch.ones(2)]}, tmp_path / "a.pt", zipped=zipped).read_bytes()
    cut = tmp_path / "cut.pt"
    for length in range(0, len(whole) - 1, 7):
        cut.write_bytes(whole[:length])
        with pytest.raises(BadCheckpoint):
            where(cut)


@pytest.mark.slow
@FORMATS
def test_no_damage_is_more_than_an_error(tmp_path: Path, *, zipped: bool) -> None:
    """A byte changed anywhere in the pickle: a wrong answer at worst, never another exception."""
    whole = save({"a": torch.ones(3), "b": [torch.ones(2)]}, tmp_path / "a.pt", zipped=zipped).read_bytes()
    other = tmp_path / "other.pt"
    for position in range(min(len(whole), 700)):
        other.write_bytes(whole[:position] + bytes([whole[position] ^ 0x15]) + whole[position + 1 :])
        try:
            where(other)
        except BadCheckpoint:
            continue


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "a.pt"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # with something in it: whoever reads gets an answer, and this test an end
    os.write(end, bytes(1000))

    with pytest.raises(BadCheckpoint) as raised:
        where(pipe)
    os.close(end)

    assert raised.value.reason == "it is a named pipe, not a file"


ODD: dict[str, tuple[str, str]] = {
    "a device": ("/dev/zero", "it is a device, not a file"),
    "a name too long": ("x" * 300, "it cannot be read (File name too long)"),
    "a name that is none": ("a\0b", "it is no name of a file (embedded null byte)"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="names of Unix")
@pytest.mark.parametrize(("path", "reason"), ODD.values(), ids=ODD)
def test_what_is_no_file_is_said_to_be_none(path: str, reason: str) -> None:
    with pytest.raises(BadCheckpoint) as raised:
        where(path)

    assert raised.value.reason == reason


def test_five_gigabytes_take_no_memory(tmp_path: Path) -> None:
    """A zip archive whose record is a hole in the file."""
    numel = 5 * 2**28
    path = tmp_path / "a.pt"
    name, size, pickled = b"a/data/0", 4 * numel, tensor(numel, size=(numel,))
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as made:
        made.writestr("a/data.pkl", pickled)
        directory = made.start_dir if hasattr(made, "start_dir") else file.tell()
        header = file.tell()
        extra = struct.pack("<HHQQ", 1, 16, size, size)
        file.seek(directory)
        file.write(
            struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, len(name), len(extra))
        )
        file.write(name + extra)
        file.seek(size, os.SEEK_CUR)
        info = zipfile.ZipInfo("a/data/0")
        info.CRC = 0
        info.file_size = info.compress_size = size
        info.header_offset = header
        info.extract_version = info.create_version = 45
        made.filelist.append(info)
        made.NameToInfo["a/data/0"] = info
        made.start_dir = file.tell()
        made._didModify = True
    tracemalloc.start()
    try:
        found = where(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found.nbytes == 5 * 2**30
    assert peak < 2**20


def test_torchscript_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as made:
        for name in ("a/data.pkl", "a/code/__torch__.py", "a/constants.pkl"):
            made.writestr(name, b"")

    with pytest.raises(BadCheckpoint, match="it is a TorchScript archive, which holds a program"):
        where(path)


OTHERS = {
    "nothing": (b"", "it is empty"),
    "a text": (b"hello", "it is no checkpoint: neither a zip archive"),
    "another pickle": (pickle.dumps({"a": 1}), "it is a pickle, but none of torch.save"),
    "an empty zip archive": (b"PK\x05\x06" + bytes(18), "it is an empty or damaged zip archive"),
    "a tar archive": (bytes(257) + b"ustar" + bytes(300), "it is a tar archive, as torch before 0.4 wrote them"),
}


@pytest.mark.parametrize(("data", "reason"), OTHERS.values(), ids=OTHERS)
def test_what_is_no_checkpoint_is_named(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(data)

    with pytest.raises(BadCheckpoint) as raised:
        where(path)

    assert raised.value.reason.startswith(reason)


def test_another_zip_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("notes.txt", "hello")

    with pytest.raises(BadCheckpoint, match=r"it has no data.pkl \(it has notes.txt\)"):
        where(path)


def test_a_file_that_is_not_there_is_guessed(tmp_path: Path) -> None:
    save(1, tmp_path / "model.pt")

    with pytest.raises(CheckpointMissing, match=r"modle.pt: there is no such file. Did you mean .*model.pt\?"):
        where(tmp_path / "modle.pt")
