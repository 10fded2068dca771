"""`wherry matrix`: the table people read, the JSON programs read, and the exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time

import pytest


@pytest.fixture(autouse=True)
def _logs_go_away_with_the_test(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))


STRAY_ON_MPS = """
    import sys, torch
    device = sys.argv[1]
    print("this is", device)
    x = torch.ones(256, device=device)
    y = torch.ones(256) if device == "mps" else torch.ones(256).to(device)
    x + y
"""


@pytest.mark.slow
def test_one_verdict_for_each_backend(folder, script):
    script(STRAY_ON_MPS)

    done = folder.wherry("matrix", "program.py", "{device}")

    assert done.status == 1
    table = done.stdout[done.stdout.index("backend ") :]
    verdicts = dict(re.findall(r"^(\w+) +(ok|failed) ", table, re.MULTILINE))
    assert verdicts == {"cpu": "ok", "cuda": "ok", "rocm": "ok", "mps": "failed", "xpu": "ok"}
    assert "program.py:7" in table
    assert "this is mps" in done.stdout
    assert "this is cuda" not in done.stdout
    assert "Traceback" in done.stdout
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["cpu", "cuda", "rocm", "mps", "xpu"]


@pytest.mark.slow
def test_json_is_the_list_of_results(folder, script):
    script(STRAY_ON_MPS)

    done = folder.wherry("matrix", "--json", "--on", "rocm,mps", "--jobs", "2", "program.py", "{device}")

    rocm, mps = json.loads(done.stdout)
    assert done.status == 1
    assert (rocm["device"], rocm["status"], rocm["error"], rocm["virtual"]) == ("rocm:0", 0, None, True)
    assert rocm["ledger"]["h2d_nbytes"] == 1024
    assert (mps["device"], mps["status"], mps["error"]["line"]) == ("mps:0", 1, 7)


@pytest.mark.slow
def test_all_well_is_status_0_and_leaves_nothing(folder, script):
    script("print('quiet')")

    done = folder.wherry("matrix", "--on", "cpu,cuda", "-m", "program")

    assert done.status == 0
    assert "quiet" not in done.stdout
    assert "error" not in done.stdout
    assert not list(folder.path.glob("wherry-*"))


@pytest.mark.slow
def test_verbose_shows_what_they_printed(folder, script):
    script("print('[bold]loud[/]')")

    done = folder.wherry("matrix", "--on", "cpu,cuda", "-v", "program.py")

    assert done.stdout.count("[bold]loud[/]\n") == 2


@pytest.mark.slow
def test_a_failure_says_where_the_rest_is(folder, script):
    script("for i in range(100): print('line', i)\nraise SystemExit(3)")

    done = folder.wherry("matrix", "--on", "cuda", "program.py")

    (log,) = folder.path.glob("wherry-matrix-*/cuda.log")
    assert str(log.parent) in done.stdout
    assert log.read_text().count("line") == 100
    assert "line 99" in done.stdout
    assert "line 50" not in done.stdout


@pytest.mark.slow
def test_one_failure_in_one_place_is_shown_once(folder, script):
    script("raise ValueError('the same everywhere')")

    done = folder.wherry("matrix", "--on", "cpu,cuda,mps", "program.py")

    assert done.stdout.count("Traceback") == 1
    assert "mps failed where cpu did." in done.stdout


@pytest.mark.slow
def test_a_timeout_is_a_verdict_and_says_where(folder, script):
    script("import time\n\ntime.sleep(60)\n")

    done = folder.wherry("matrix", "--on", "cuda", "--timeout", "2", "--json", "program.py")

    (result,) = json.loads(done.stdout)
    assert done.status == 1
    assert result["status"] is None
    assert (result["error"]["type"], result["error"]["line"]) == ("TimedOut", 3)
    assert "timed out" in done.stderr


DEATHS = {
    "os._exit(0)": ("import os; os._exit(0)", 0, 0, None),
    "os._exit(5)": ("import os; os._exit(5)", 1, 5, None),
    "SIGKILL": ("import os; os.kill(os.getpid(), 9)", 1, 137, "SIGKILL"),
    "syntax error": ("x = = 1", 1, 1, "SyntaxError"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEATHS)
def test_a_program_that_leaves_no_word(folder, script, name):
    text, status, its_status, kind = DEATHS[name]
    script(text)

    done = folder.wherry("matrix", "--on", "cuda", "--json", "program.py")

    (result,) = json.loads(done.stdout)
    assert (done.status, result["status"]) == (status, its_status)
    assert (result["error"] and result["error"]["type"]) == kind


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_what_runs(folder, script, number):
    script("""
        import os, time
        with open("pid.part", "w") as file: file.write(str(os.getpid()))
        os.rename("pid.part", "pid")
        time.sleep(60)
    """)
    process = folder.start(sys.executable, "-m", "wherry", "matrix", "program.py", start_new_session=True)
    _until((folder.path / "pid").exists)

    process.send_signal(number)
    done = folder.end(process)

    assert done.status == 130
    assert "Interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(ProcessLookupError):
        _signal(int((folder.path / "pid").read_text()), 0)


MISUSES = {
    "missing script": (["nope.py"], "nope.py: there is no such file."),
    "unknown device": (["--on", "cuda,mpss", "program.py"], 'Did you mean "mps"?'),
    "nothing": ([], "nothing to run"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_one_sentence_and_status_2(folder, script, name):
    args, sentence = MISUSES[name]
    script("")

    done = folder.wherry("matrix", *args)

    assert (done.status, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert sentence in done.stderr


def _until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _signal(pid: int, number: int) -> None:
    os.kill(pid, number)


@pytest.mark.slow
def test_operator_or_dtype_that_a_device_lacks_is_a_verdict_of_its_own(folder, script, monkeypatch):
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
    script("""
        import sys, torch
        kind, device = sys.argv[1:]
        x = torch.ones(2, 2, device=device)
        if kind == "kernel":
            x.put_(torch.tensor([0], device=device), torch.ones(1, device=device))
        elif kind == "dtype":
            x.double()
    """)

    kernel = folder.wherry("matrix", "--on", "mps,cuda", "program.py", "kernel", "{device}")
    dtype = folder.wherry("matrix", "--on", "mps,cuda", "program.py", "dtype", "{device}")

    assert (kernel.status, dtype.status) == (1, 1)
    assert re.search(r"^mps +no kernel +.*program.py:6 no aten::put_$", kernel.stdout, re.MULTILINE)
    assert re.search(r"^mps +no dtype +.*program.py:8 no float64$", dtype.stdout, re.MULTILINE)
    assert re.search(r"^cuda +ok +", kernel.stdout, re.MULTILINE)


@pytest.mark.slow
def test_program_whose_operators_fall_back_ran_and_says_so(folder, script, monkeypatch):
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    script("""
        import sys, torch
        device = sys.argv[1]
        w = torch.ones(64, requires_grad=True, device=device)
        optimizer = torch.optim.SGD([w])
        for _ in range(4):
            w.take(torch.arange(64, device=device)).sum().backward()
            optimizer.step()
    """)

    done = folder.wherry("matrix", "--on", "mps,cuda", "program.py", "{device}")

    assert done.status == 0
    row = next(line for line in done.stdout.splitlines() if line.startswith("mps"))
    assert row.split()[:3] == ["mps", "falls", "back"]
    assert "runs, " in row
    assert "per step" in " ".join(done.stdout.split())
    assert re.search(r"^cuda +ok +", done.stdout, re.MULTILINE)
    assert done.stderr.split()[1:4] == ["mps", "falls", "back"]
