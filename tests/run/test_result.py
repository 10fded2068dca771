"""The values of a result, their JSON, and what the closing line says of them."""

from __future__ import annotations

import pytest

from wherry.events import Use
from wherry.run.result import Counts, Failure, Result

COUNTS = Counts(ops=12_340, h2d_nbytes=1_258_291, d2h_nbytes=3482)
FELL_BACK = (Use("aten::take", "/x/train.py", 3, 5, 2048), Use("aten::put_", "/x/train.py", 4, 1, 1024))
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
        (
            Result("mps:0", True, 0, None, Counts(9, 0, 0, fallbacks=FELL_BACK), processes=1, seconds=1),
            "ran on mps:0 (virtual) · 9 ops · 0 B to the device, 0 B back · 2 operators fall back, 3 KiB across · 1 s",
        ),
        (
            Result("mps:0", True, 0, None, Counts(9, fallbacks=FELL_BACK[:1], steps=2), processes=1, seconds=1),
            "ran on mps:0 (virtual) · 9 ops · 0 B to the device, 0 B back · 1 operator falls back, 1 KiB across per step · 1 s",
        ),
    ],
)
def test_the_closing_line(result, line):
    assert " · ".join(result.closing_parts()) == line


def test_fallbacks_add_up_by_line_and_can_be_taken_off():
    one, two = Counts(fallbacks=FELL_BACK, steps=1, uses=FELL_BACK[:1]), Counts(fallbacks=FELL_BACK[1:], steps=2)

    both = one + two

    assert [(use.count, use.nbytes) for use in both.fallbacks] == [(5, 2048), (2, 2048)]
    assert both.steps == 3
    assert both - two == one
    assert Counts.from_json(both.to_json()) == both


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
