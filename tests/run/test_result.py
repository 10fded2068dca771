"""The values of a result, their JSON, and what the closing line says of them."""

from __future__ import annotations

import pytest

from wherry.run.result import Counts, Failure, Result

COUNTS = Counts(ops=12_340, h2d_nbytes=1_258_291, d2h_nbytes=3482)
STRAY = Failure("RuntimeError", "Expected all tensors\nto be somewhere", "/x/train.py", 12)


@pytest.mark.parametrize(
    "result",
    [
        Result("mps:0", True, 0, None, COUNTS, processes=2, seconds=4.125),
        Result("cuda:1", True, 1, STRAY, Counts(1, 2, 3, 4), processes=1, seconds=0.5),
        Result("cpu", False, 137, Failure("SIGKILL", ""), None),
        Result("xpu:0", True, None, Failure("Unfinished", "x"), None),
    ],
)
def test_what_is_written_is_read(tmp_path, result):
    file = tmp_path / "result.json"

    result.write(file)

    assert Result.read(file) == result
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            Result("mps:0", True, 0, None, COUNTS, processes=1, seconds=4.1),
            "ran on mps:0 (virtual) · 12,340 ops · 1.2 MiB to the device, 3.4 KiB back · 4.1 s",
        ),
        (
            Result("cuda:0", True, 1, STRAY, Counts(1, 0, 0, 2048), processes=3, seconds=4.1),
            "failed on cuda:0 (virtual) · RuntimeError at /x/train.py:12 · 1 op · "
            "0 B to the device, 0 B back, 2 KiB between devices · 3 processes · 4.1 s",
        ),
        (
            Result("cuda:0", False, 3, Failure("SystemExit", "3", "/x/train.py", 2), None, seconds=4.1),
            "failed on cuda:0 (real) · exit status 3 · 4.1 s",
        ),
        (Result("cuda:0", False, 0, None, None, seconds=4.1), "ran on cuda:0 (real) · 4.1 s"),
        (Result("cuda:0", False, 3, None, None, seconds=4.1), "failed on cuda:0 (real) · exit status 3 · 4.1 s"),
        (Result("mps:0", True, 0, None, Counts(), seconds=0.2), "ran without torch · 200 ms"),
    ],
)
def test_the_closing_line(result, line):
    assert " · ".join(result.closing_parts()) == line


def test_counts_add_up_and_can_be_taken_off():
    assert COUNTS + COUNTS - COUNTS == COUNTS


def test_a_file_below_the_current_folder_is_named_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert Failure("E", "", str(tmp_path / "a" / "b.py"), 3).where == "a/b.py:3"
    assert Failure("E", "", "/elsewhere/b.py", 3).where == "/elsewhere/b.py:3"
    assert Failure("E", "").where is None


def test_the_headline_is_the_first_line():
    assert STRAY.headline == "RuntimeError: Expected all tensors"
    assert Failure("SystemExit", "3").headline == "exit status 3"
    assert Failure("SystemExit", "no data").headline == "SystemExit: no data"
    assert Failure("KeyboardInterrupt", "").headline == "KeyboardInterrupt"
