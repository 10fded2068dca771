"""A virtual environment with a CUDA build of torch, on a machine without a driver and without NVIDIA's packages.

    python scripts/cuda_wheel.py FOLDER
    LD_LIBRARY_PATH=FOLDER/stand-ins FOLDER/bin/python -c 'import torch; print(torch.version.cuda)'

Besides torch it has what torch and our tests need in Python. The libraries torch is linked against are stand-ins
(nvidia_stand_ins.py beside this file), so that of the fourteen NVIDIA packages none is downloaded. `make test-cuda-wheel`.
"""

from __future__ import annotations

import email
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

TORCH = "2.14.1"  # newer than the release in constraints.txt on purpose: what holds here holds for more than one
ROOM = 4 * 2**30  # bytes: the wheel of 0.5 GiB, unpacked 1.2 GiB, pip's copy on the way, and what the tests need
TOOLS = ("cc", "nm", "readelf")
NVIDIA = re.compile(r"nvidia|cuda|triton")

ROOT = Path(__file__).resolve().parent.parent


def main(folder: Path) -> None:
    check_machine(folder)
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        # `===` compares text: with `==` a build that calls itself 2.14.1+cpu would do as well, where pip can see one.
        pip(python, "download", "--no-deps", f"torch==={TORCH}", "--dest", scratch)
        (wheel,) = Path(scratch).glob("torch-*.whl")
        constraints = Path(scratch, "constraints.txt")
        pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        constraints.write_text("".join(line for line in pinned if not line.startswith("torch==")), encoding="utf-8")
        # torch comes last: pip would name everything it misses as an error each time something else is installed.
        pip(python, "install", "-c", str(constraints), *needs(wheel), "-e", f"{ROOT}[dev]")
        pip(python, "install", "--no-deps", str(wheel))
    torch = next(folder.glob("lib/python*/site-packages/torch"))
    stand_ins = folder / "stand-ins"
    subprocess.run([python, ROOT / "scripts" / "nvidia_stand_ins.py", torch, stand_ins], check=True)
    check_import(python, stand_ins)


def check_machine(folder: Path) -> None:
    if (sys.platform, platform.machine()) not in {("linux", "x86_64"), ("linux", "aarch64")}:
        sys.exit(f"CUDA builds of torch are for Linux; this is {sys.platform} on {platform.machine()}.")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        sys.exit(f"Not found: {', '.join(missing)}. Stand-in libraries need a C compiler and binutils to be made.")
    free = shutil.disk_usage(folder.absolute().parent).free
    if free < ROOM:
        sys.exit(
            f"{folder.absolute().parent} has {free / 2**30:.1f} GiB left; a CUDA build needs {ROOM / 2**30:.0f} GiB."
        )


def pip(python: Path, verb: str, *arguments: str) -> None:
    command = [python, "-m", "pip", verb, "--quiet", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"pip could not {verb} {' '.join(arguments)}: its reason stands above.")


def needs(wheel: Path) -> list[str]:
    """What torch requires, without extras, and without what is NVIDIA's or of use on a GPU alone."""
    with zipfile.ZipFile(wheel) as archive:
        if not re.search(r"^cuda\b.*= '", archive.read("torch/version.py").decode(), re.MULTILINE):
            sys.exit(
                f"The torch {TORCH} that pip chose is no CUDA build. Is it asked for an index of CPU builds alone?"
            )
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"torch-[^/]*\.dist-info/METADATA", name))
        required = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    return [need for need in required if "extra ==" not in need and not NVIDIA.match(need)]


def check_import(python: Path, stand_ins: Path) -> None:
    code = "import torch; assert torch.version.cuda and not torch.cuda.is_available(), 'this process has a GPU'"
    done = subprocess.run(
        [python, "-W", "ignore", "-c", code],
        env={"LD_LIBRARY_PATH": str(stand_ins.absolute()), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"torch {TORCH} does not load with the stand-ins made for it:\n{done.stderr}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
