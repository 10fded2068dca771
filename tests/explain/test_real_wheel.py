"""As on real hardware: the real CUDA build's own host code raises, and there is no record of who made what.

A CUDA build of torch runs its dispatch and its device checks over stand-in libraries that say a GPU is here; its kernels do
nothing. To have it, unpack the wheel into a folder without its dependencies, make the stand-ins (a library for each that the
build is linked against, which answers as for two devices), and say where both are:

    WHERRY_CUDA_WHEEL=FOLDER WHERRY_CUDA_STAND_INS=FOLDER python -m pytest tests/explain/test_real_wheel.py -s
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wherry

HERE = Path(__file__).parent
WHEEL, STAND_INS = os.environ.get("WHERRY_CUDA_WHEEL"), os.environ.get("WHERRY_CUDA_STAND_INS")
CASES = sorted((HERE / "cases").glob("1[3-5]*.json"))[-20:]


def plain(name: str) -> str:
    return re.sub(r"\s+", "", name).replace('"', "'")


@pytest.mark.slow
@pytest.mark.skipif(
    WHEEL is None or STAND_INS is None,
    reason="needs a CUDA build of torch and stand-in libraries: WHERRY_CUDA_WHEEL and WHERRY_CUDA_STAND_INS",
)
def test_culprits_are_named_without_records(tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "LD_LIBRARY_PATH": str(STAND_INS),
        "PYTHONPATH": os.pathsep.join((str(WHEEL), str(Path(wherry.__file__).parent.parent))),
    }
    ran, named, traced, missed = 0, 0, 0, []
    for path in CASES:
        case = json.loads(path.read_text(encoding="utf-8"))
        result = tmp_path / "result.json"
        argv = [sys.executable, "-m", "wherry", "run", "--real", "--on", "cuda", "--count", str(case["n_devices"])]
        script = path.with_suffix(".py")
        subprocess.run(
            [*argv, "--result", str(result), str(HERE / "without_cudnn.py"), str(script)],
            env=environ,
            capture_output=True,
            check=False,
        )
        error = json.loads(result.read_text(encoding="utf-8"))["error"] or {}
        if error.get("line") != case["error_line"]:
            missed.append(f"{path.stem} does not fail there: line {error.get('line')}, {error.get('message')!r}"[:160])
            continue  # a kernel that does nothing, or a library that the stand-in does not stand for
        ran += 1
        culprit = error.get("culprit") or {}
        if plain(str(culprit.get("name"))) in {plain(name) for name in (case["culprit"], *case["alt_culprits"])}:
            named += 1
            traced += (culprit["origin"] or {}).get("line") in {case["origin_line"], *case["alt_origin_lines"]}
        else:
            missed.append(f"{path.stem} named {culprit.get('name')!r} for {case['culprit']!r}")
    print(f"\n{named} of {ran} culprits and {traced} origins, on the real host code", *missed, sep="\n")
    assert ran >= 17
    assert named >= 17
