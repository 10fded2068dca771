"""`wherry devices`: the table people read and the JSON programs read."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from wherry import backends
from wherry.cli import app
from wherry.cli._console import THEME, Status
from wherry.cli.devices import draw, gather
from wherry.roster import Broken
from wherry.units import GIB


def shown(width: int = 80) -> str:
    console = Console(theme=THEME, highlight=False, width=width, no_color=True, file=io.StringIO())
    with console.capture() as capture:
        console.print(draw(gather()))
    return capture.get()


def here(text: str) -> list[str]:
    """The lines under "Here", without the spaces at their ends."""
    section = text.split("Here\n", 1)[1].split("\n\n", 1)[0]
    return [re.sub(r" {2,}", "  ", line.strip()) for line in section.splitlines() if line.strip()]


def test_devices_that_are_here_are_shown_with_their_memory(machine) -> None:
    machine(machine.present("cpu", 4 * GIB), machine.present("cuda", 3 * GIB, 20 * GIB))

    lines = here(shown())

    assert lines[:3] == [
        "cpu  present  CPU 0, 4 GiB of 8 GiB free",
        "cuda:0  present  NVIDIA CUDA 0, 3 GiB of 6 GiB free",
        "cuda:1  picked  NVIDIA CUDA 1, 20 GiB of 40 GiB free",
    ]
    assert lines[-1] == ("xpu  absent  " + backends.find("xpu").probe().reason)


def test_pick_is_explained(machine) -> None:
    machine(machine.present("cuda", 3 * GIB, 20 * GIB))

    assert (
        "wherry.pick() would choose cuda:1, because of 2 NVIDIA CUDA devices it has the most free memory, 20 GiB."
        in shown(120)
    )


def test_broken_is_told_apart_from_absent(machine) -> None:
    machine(machine.broken("cuda", "The NVIDIA driver on your system is too old"))

    lines = here(shown())

    assert "cuda  broken  The NVIDIA driver on your system is too old" in lines
    assert any(line.startswith("mps  absent") for line in lines)


def test_device_whose_memory_cannot_be_asked_is_still_shown(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def memory(index: int) -> None:
        raise RuntimeError("CUDA error: out of memory\nmore")

    cuda = machine.present("cuda", GIB)
    monkeypatch.setattr(cuda, "memory", memory)
    machine(cuda)

    assert "cuda:0  picked  NVIDIA CUDA 0, CUDA error: out of memory" in here(shown())


def test_entry_point_that_could_not_be_loaded_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "broken", lambda: (Broken("npu", "npu_wherry (npu 1.0)", "ImportError: no driver"),))

    text = shown(120)

    assert "Entry points that could not be loaded" in text
    assert "npu   npu_wherry (npu 1.0)   ImportError: no driver" in text


def test_every_backend_can_be_seen_and_rehearsed() -> None:
    text = shown()

    for backend in backends.all():
        assert f"--on {backend.name} " in text


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_table_keeps_to_the_width(width: int) -> None:
    assert max(len(line.rstrip()) for line in shown(width).splitlines()) <= width


def test_abilities_are_those_of_the_backends() -> None:
    text = shown()

    assert re.search(r"float64 +yes +yes +yes +no +yes", text)
    assert re.search(r"torch.distributed +gloo +nccl +nccl +gloo +xccl", text)


def test_json_says_the_same_and_more(machine) -> None:
    machine(machine.present("mps", GIB))

    done = CliRunner().invoke(app(), ["devices", "--json"])
    found = json.loads(done.output)
    by_name = {backend["name"]: backend for backend in found["backends"]}

    assert done.exit_code == Status.OK
    assert found["pick"]["device"] == "mps:0"
    assert by_name["mps"]["devices"] == [
        {"device": "mps:0", "name": "Apple MPS 0", "memory": {"free": GIB, "total": 2 * GIB}, "trouble": None}
    ]
    assert by_name["mps"]["state"] == "present"
    assert by_name["cuda"]["state"] == "absent"
    assert by_name["cuda"]["reason"]
    assert by_name["rocm"]["device_type"] == "cuda"
    assert by_name["rocm"]["capabilities"]["compile"] == "mature"
    assert by_name["mps"]["rehearsal"] == {"name": "Apple M4 Pro", "memory": 19069665280, "max_count": 1}
    assert all(quirk["source"].startswith("https://") for quirk in by_name["mps"]["quirks"])


@pytest.mark.slow
@pytest.mark.parametrize("words", [["devices"], ["devices", "--json"]])
def test_without_torch_it_works_and_says_so(words: list[str]) -> None:
    program = f"import sys; sys.modules['torch'] = None; sys.argv[1:] = {words}; from wherry.cli import main; main()"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == Status.OK, done.stderr
    assert "torch is not installed" in done.stdout
    assert "pip install 'wherry[torch]'" in " ".join(done.stdout.split())
    assert done.stderr == ""


@pytest.mark.slow
def test_colour_is_for_terminals() -> None:
    plain = subprocess.run([sys.executable, "-m", "wherry", "devices"], capture_output=True, text=True, check=True)

    assert "\x1b[" not in plain.stdout
