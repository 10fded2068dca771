"""`wherry run`: options, exit statuses, signals, the result file, the closing line, and every misuse in one sentence."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from wherry.cli._program import divide

FAILS = """
    import torch
    x = torch.ones(3, device="mps")

    def mix(y):
        return x + y

    mix(torch.ones(3))
"""


@pytest.mark.slow
def test_the_result_of_a_success(folder, script):
    script("import torch; x = torch.ones(256).to('mps'); print((x + 1).cpu().sum().item())")

    done = folder.wherry("run", "--on", "mps", "--virtual", "--result", "result.json", "program.py")

    assert (done.status, done.stdout) == (0, "512.0\n")
    result = folder.result()
    assert list(result) == ["device", "virtual", "status", "ops", "error", "ledger"]
    assert result["device"] == "mps:0"
    assert result["virtual"] is True
    assert result["status"] == 0
    assert result["ops"] >= 3
    assert result["error"] is None
    assert result["ledger"]["h2d_nbytes"] == 1024
    assert result["ledger"]["d2h_nbytes"] >= 1024
    assert result["ledger"]["d2d_nbytes"] == 0
    assert re.fullmatch(
        r"wherry: ran on mps:0 \(virtual\) · \d+ ops · 1 KiB to the device, 1 KiB back · [\d.]+ m?s\n", done.stderr
    )


@pytest.mark.slow
def test_the_result_of_a_failure(folder, script):
    script(FAILS)

    done = folder.wherry("run", "--on", "mps", "--result", "result.json", "program.py")

    file = str(folder.path / "program.py")
    assert done.status == 1
    error = folder.result()["error"]
    assert list(error) == ["type", "message", "file", "line", "op", "culprit", "operands", "why", "fix", "siblings"]
    assert (error["type"], error["file"], error["line"]) == ("RuntimeError", file, 6)
    assert error["message"].startswith("Expected all tensors to be on the same device")
    assert [operand["device"] for operand in error["operands"]] == ["mps:0", "cpu"]
    assert error["culprit"]["device"] == "cpu"
    assert all(error[name] for name in ("op", "culprit", "why", "fix"))
    lines = done.stderr.splitlines()
    frames = [line for line in lines if line.startswith("  File")]
    assert frames == [f'  File "{file}", line 8, in <module>', f'  File "{file}", line 6, in mix']
    assert lines[-1].startswith("wherry: failed on mps:0 (virtual) · RuntimeError at program.py:6 · ")


ENDS = {
    "an exit status": ("import sys; sys.exit(3)", 3, "SystemExit", 1),
    "a text": ("import sys\nsys.exit('no data')", 1, "SystemExit", 2),
    "success": ("raise SystemExit(0)", 0, None, None),
    "an exception of the program": ("class Odd(Exception): pass\nraise Odd('x')", 1, "Odd", 2),
    "an exception of a module": ("import json\njson.loads('{')", 1, "json.decoder.JSONDecodeError", 2),
    "a syntax error": ("x = 1\n\nx = = 1\n", 1, "SyntaxError", 3),
    "a keyboard interrupt": ("\nraise KeyboardInterrupt", 130, "KeyboardInterrupt", 2),
    "SIGTERM": ("import os, time\n\nos.kill(os.getpid(), 15); time.sleep(9)", 143, "SIGTERM", 3),
    "os._exit": ("import os; os._exit(0)", None, "Unfinished", None),
}


@pytest.mark.slow
def test_an_error_that_is_not_about_devices_has_no_explanation(folder, script):
    script("raise ValueError('cuda or cpu?')")

    folder.wherry("run", "--on", "mps", "--result", "result.json", "program.py")

    error = folder.result()["error"]
    assert error["operands"] == error["siblings"] == []
    assert {error[name] for name in ("op", "culprit", "why", "fix")} == {None}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_the_result_is_written_however_it_ends(folder, script, name):
    text, status, kind, line = ENDS[name]
    folder.write("program.py", "").write_text(text)

    folder.wherry("run", "--on", "mps", "--result", "result.json", "program.py")

    result = folder.result()
    assert result["status"] == status
    assert (result["error"] and result["error"]["type"]) == kind
    assert (result["error"] and result["error"]["line"]) == line


@pytest.mark.slow
def test_the_error_is_at_the_innermost_line_of_the_users(folder, script):
    """Not in what is installed, not in the standard library; an environment in the program's folder is not the user's."""
    folder.write(".venv/lib/site-packages/lib.py", "def call(f):\n    f()\n    raise ValueError\n")
    script("""
        import sys
        sys.path.append(".venv/lib/site-packages")
        import lib
        lib.call(print)
    """)

    folder.wherry("run", "--on", "mps", "--result", "result.json", "program.py")

    assert folder.result()["error"]["file"] == str(folder.path / "program.py")
    assert folder.result()["error"]["line"] == 5


@pytest.mark.slow
def test_an_installed_program_is_the_users_when_it_is_run(folder):
    folder.write("site-packages/tool/__init__.py", "")
    folder.write("site-packages/tool/__main__.py", "from tool.work import work\nwork()\n")
    folder.write("site-packages/tool/work.py", "\ndef work(): raise ValueError\n")
    path = os.pathsep.join([str(folder.path / "site-packages"), os.environ.get("PYTHONPATH", "")])

    folder.wherry("run", "--on", "mps", "--result", "result.json", "-m", "tool", env={"PYTHONPATH": path})

    assert folder.result()["error"]["file"] == str(folder.path / "site-packages/tool/work.py")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("as_command", [False, True], ids=["script", "command"])
def test_signals_reach_the_program_and_its_end_reaches_the_parent(folder, script, number, as_command):
    script("""
        import time
        print("ready", flush=True)
        time.sleep(30)
    """)
    program = ["--", sys.executable, "program.py"] if as_command else ["program.py"]
    argv = [sys.executable, "-m", "wherry", "run", "--on", "mps", "--result", "result.json", *program]
    process = folder.start(*argv, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(number)
    done = folder.end(process)

    assert done.status == -number
    assert folder.result()["status"] == 128 + number
    assert done.stderr.splitlines()[-1].startswith("wherry: failed")
    assert ("KeyboardInterrupt" in done.stderr) == (number == signal.SIGINT)


@pytest.mark.slow
def test_a_key_in_a_terminal_interrupts_a_command_once(folder):
    """The terminal sends SIGINT to the command as well: passing it on would interrupt its clean-up."""
    pexpect = pytest.importorskip("pexpect", reason="needs a terminal of its own")
    folder.write(
        "program.py",
        """
        import time
        try:
            print("ready", flush=True)
            time.sleep(30)
        except KeyboardInterrupt:
            time.sleep(0.5)
            print("cleaned up", flush=True)
        """,
    )
    argv = ["-m", "wherry", "run", "--on", "mps", "--", sys.executable, "program.py"]
    terminal = pexpect.spawn(sys.executable, argv, cwd=str(folder.path), timeout=20)
    terminal.expect("ready")

    terminal.sendintr()

    terminal.expect("cleaned up")
    terminal.expect("wherry: .*ran.*without torch")
    terminal.wait()
    assert terminal.exitstatus == 0


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["exit 5", "kill -USR1 $$", "kill -KILL $$"])
def test_a_command_ends_as_it_does_alone(folder, ending):
    alone = folder.end(folder.start("sh", "-c", f"echo x; {ending}"))

    done = folder.wherry("run", "--on", "mps", "--quiet", "--", "sh", "-c", f"echo x; {ending}")

    assert done == alone


@pytest.mark.slow
def test_options_after_the_program_are_the_programs(folder, script):
    script("import sys; print(sys.argv[1:])")
    words = ["--count", "3", "--on", "x", "-m", "y", "--", "--help"]

    done = folder.wherry("run", "--on", "mps", "-q", "program.py", *words)
    module = folder.wherry("run", "--on", "mps", "-q", "-m", "program", *words)

    assert done.stdout == module.stdout == f"{words}\n"


@pytest.mark.parametrize(
    ("words", "divided"),
    [
        (["train.py"], ["--", "train.py"]),
        (["--on", "mps", "train.py", "-q"], ["--on", "mps", "--", "train.py", "-q"]),
        (["--on=mps", "-q", "train.py"], ["--on=mps", "-q", "--", "train.py"]),
        (["-q", "-m", "a.b", "--on", "x"], ["-q", "--", "-m", "a.b", "--on", "x"]),
        (["--", "ls", "-l"], ["--", "--", "ls", "-l"]),
        (["-", "x"], ["--", "-", "x"]),
        (["--on"], ["--on"]),
        ([], []),
    ],
)
def test_where_the_program_begins(words, divided):
    assert divide(words, {"--on"}) == divided


@pytest.mark.slow
def test_the_virtual_machine_has_what_was_asked_for(folder, script):
    script("""
        import torch
        print(torch.cuda.device_count())
        torch.empty(2**28, device="cuda:1")
    """)

    done = folder.wherry(
        *("run", "--on", "cuda:1", "--memory", "512MiB", "--result", "result.json", "program.py"),
    )

    assert (done.status, done.stdout) == (1, "2\n")
    assert folder.result()["device"] == "cuda:1"
    assert folder.result()["error"]["type"] == "torch.OutOfMemoryError"


@pytest.mark.slow
def test_a_real_device_runs_the_program_unchanged(folder, script):
    """The CPU is always here. The twin: the same with --virtual is a rehearsal."""
    script("import sys, torch; torch.ones(1); print('wherry.rehearse' in sys.modules)")

    real = folder.wherry("run", "--on", "cpu", "--result", "real.json", "program.py")
    virtual = folder.wherry("run", "--on", "cpu", "--virtual", "--result", "virtual.json", "program.py")

    assert (real.stdout, virtual.stdout) == ("False\n", "True\n")
    assert re.fullmatch(r"wherry: ran on cpu \(real\) · [\d.]+ m?s\n", real.stderr)
    assert (folder.result("real.json")["virtual"], folder.result("real.json")["ops"]) == (False, None)
    assert (folder.result("virtual.json")["virtual"], folder.result("virtual.json")["ops"]) == (True, 1)


@pytest.mark.slow
def test_the_environment_chooses_the_device(folder, script):
    script("import torch; print(torch.backends.mps.is_available())")

    done = folder.wherry("run", "program.py", env={"WHERRY_DEVICE": "mps"})

    assert done.stdout == "True\n"


@pytest.mark.slow
def test_what_a_program_sets_before_it_imports_torch_counts(folder, script):
    script("""
        import os
        os.environ["OMP_NUM_THREADS"] = "2"
        import torch
        print(torch.get_num_threads())
    """)
    expected = folder.python("program.py")  # 2, where there are two cores

    done = folder.wherry("run", "--on", "mps", "program.py")

    assert done.stdout == expected.stdout


@pytest.mark.slow
@pytest.mark.parametrize("close", ["2>&-", "2>/dev/full"])
def test_a_closed_stderr_is_no_error(folder, script, close):
    script("print('x')")
    shell = f"exec {sys.executable} -m wherry run --on mps program.py {close}"

    done = folder.end(folder.start("sh", "-c", shell))

    assert (done.status, done.stdout) == (0, "x\n")


@pytest.mark.slow
def test_a_stderr_without_unicode(folder, script):
    script("print('x')")

    done = folder.wherry("run", "--on", "mps", "program.py", env={"PYTHONIOENCODING": "ascii"})

    assert done.stderr.startswith("wherry: ran without torch - ")


MISUSES = {
    "nothing": ([], "nothing to run: name a script, -m MODULE, or -- COMMAND."),
    "missing script": (["trian.py"], "trian.py: there is no such file. Did you mean train.py?"),
    "folder": (["."], ".: this folder has no __main__.py to run."),
    "command as a script": (["ls"], "ls: there is no such file, but a command of that name. Write: -- ls."),
    "unknown device": (
        ["--on", "cudda", "train.py"],
        '"cudda" is no device wherry knows. Did you mean "cuda"? Known are cpu, cuda, rocm, mps, xpu.',
    ),
    "index that is no number": (["--on", "cuda:x", "train.py"], '"cuda:x" is no device wherry knows. Did you mean'),
    "count 0": (["--on", "cuda", "--count", "0", "train.py"], "0 is no number of cuda devices."),
    "two mps devices": (["--on", "mps", "--count", "2", "train.py"], "torch knows one mps device"),
    "index beyond the count": (["--on", "cuda:1", "--count", "1", "train.py"], '"cuda:1" asks for index 1'),
    "memory": (["--on", "cuda", "--memory", "lots", "train.py"], '"lots" is no size:'),
    "virtual and real": (["--virtual", "--real", "train.py"], "--virtual and --real contradict each other."),
    "profile": (
        ["--on", "cuda", "--profile", "rtx409", "train.py"],
        '"rtx409" is no profile of cuda. Did you mean "rtx4090"?',
    ),
    "real with profile": (["--real", "--profile", "t4", "train.py"], "--profile is for virtual devices"),
    "real with memory": (["--real", "--memory", "1GiB", "train.py"], "--memory is for virtual devices"),
    "result in no folder": (
        ["--on", "cuda", "--result", "no/r.json", "train.py"],
        "no/r.json: no such file or directory. Name a file in a folder that is there.",
    ),
    "result is a folder": (["--on", "cuda", "--result", ".", "train.py"], "is a directory"),
    "no module": (["--on", "cuda", "-m", "nomodule"], "-m nomodule: No module named nomodule."),
    "package without main": (["--on", "cuda", "-m", "email"], "'email' is a package and cannot be directly executed."),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_one_sentence_and_status_2(folder, name):
    args, sentence = MISUSES[name]
    folder.write("train.py", "print('it ran')")

    done = folder.wherry("run", *args)

    assert (done.status, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("wherry: ")
    assert sentence in done.stderr


@pytest.mark.slow
def test_a_real_device_that_is_not_here(folder, script):
    script("print('it ran')")
    code = "import torch; print(torch.xpu.is_available())"
    if folder.python("-c", code).stdout == "True\n":
        pytest.skip("this machine has an XPU")

    done = folder.wherry("run", "--on", "xpu", "--real", "program.py")

    assert (done.status, done.stdout) == (2, "")
    assert re.fullmatch(r'wherry: "xpu" is (not here|broken): .+ `wherry run --on xpu`\.\n', done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "status"), [("nosuchcommand", 127), ("./program.py", 126)])
def test_a_command_that_cannot_be_run_has_the_shells_status(folder, script, command, status):
    script("")

    done = folder.wherry("run", "--on", "cuda", "--result", "result.json", "--", command)

    assert done.status == status
    assert folder.result()["status"] == status
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_without_torch(folder, script):
    """A Python that finds no torch: an entry in sys.modules that says so stands in for an environment without it."""
    script("print('it ran')")
    folder.write("lib/sitecustomize.py", "import sys; sys.modules['torch'] = None")
    path = os.pathsep.join([str(folder.path / "lib"), os.environ.get("PYTHONPATH", "")])

    done = folder.wherry("run", "--on", "cuda", "program.py", env={"PYTHONPATH": path})

    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "needs torch, which is not installed here. Install it with: pip install 'wherry[torch]'\n"
    )


@pytest.mark.slow
def test_the_result_can_go_to_a_pipe(folder, script):
    script("print('x')")

    done = folder.wherry("run", "--on", "mps", "--quiet", "--result", "/dev/stderr", "program.py")

    last = done.stderr[done.stderr.rindex('{\n  "device"') :]
    assert json.loads(last)["status"] == 0


def test_the_installed_command_is_the_same(folder, script):
    """`wherry` and `python -m wherry` differ in what Python puts on sys.path."""
    command = Path(sys.executable).with_name("wherry")
    if not command.exists():
        pytest.skip("wherry is not installed in this environment")
    script("import sys; print(sys.path)")
    expected = folder.python("program.py")

    done = folder.end(folder.start(str(command), "run", "--on", "mps", "program.py"))

    assert done.stdout == expected.stdout
