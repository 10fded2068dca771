"""Child processes take part, are counted once, and are never harmed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from wherry.run.children import Report, Session, dismiss, invite
from wherry.run.plan import Plan, Want
from wherry.run.result import Counts, Failure

PLAN = Plan("cuda", 0, 1, None, Want.VIRTUAL)
MOVE = "import torch; print(torch.ones(2).to('cuda').device, flush=True)\n"  # moves 8 bytes


def test_an_invitation_can_be_taken_back():
    environ = {"PYTHONPATH": "a" + os.pathsep + "b", "HOME": "/"}
    before = dict(environ)

    invite(PLAN, Session(Path("x")), environ)
    assert environ["PYTHONPATH"].split(os.pathsep)[1:] == ["a", "b"]
    assert environ["WHERRY_ON"] == "cuda"
    dismiss(environ)

    assert environ == before


def test_an_invitation_replaces_an_earlier_one():
    environ: dict[str, str] = {}

    invite(Plan("xpu", 1, 2, 5, Want.EITHER), Session(Path("x")), environ)
    invite(PLAN, Session(Path("y")), environ)

    assert Plan.read_from(environ) == PLAN
    assert len(environ["PYTHONPATH"].split(os.pathsep)) == 1


@pytest.mark.parametrize("plan", [PLAN, Plan("rocm", 1, 2, 2**30, Want.EITHER), Plan("cpu", 0, 1, None, Want.VIRTUAL)])
def test_a_plan_arrives_as_it_was_sent(plan):
    environ: dict[str, str] = {}

    plan.write_to(environ)

    assert Plan.read_from(environ) == plan


def test_reports_come_back_in_the_order_they_were_left():
    session = Session.open()
    late = Report(True, Counts(1, 2, 3, 4), Failure("ValueError", "x", "f.py", 3), time=2.0)
    early = Report(False, Counts(), None, time=1.0)

    session.leave("b", late)
    session.leave("a", early)

    assert session.reports() == (early, late)
    session.close()
    session.leave("c", early)  # nobody is left to read it: no error
    assert not session.folder.exists()


@pytest.mark.slow
def test_a_python_child_takes_part_and_is_counted(folder, script):
    folder.write("child.py", MOVE)
    script("import subprocess, sys; subprocess.run([sys.executable, 'child.py'], check=True)")

    done = folder.wherry("run", "--on", "cuda", "--virtual", "--result", "result.json", "program.py")

    assert (done.status, done.stdout) == (0, "cuda:0\n")
    assert folder.result()["ledger"]["h2d_nbytes"] == 8
    assert folder.result()["ledger"]["processes"] == 1
    assert done.stderr.count("wherry:") == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_are_counted_once(folder, script, method):
    script(f"""
        import multiprocessing, torch
        def work(n):
            torch.ones(n).to("mps")
        if __name__ == "__main__":
            torch.ones(1).to("mps")
            context = multiprocessing.get_context({method!r})
            children = [context.Process(target=work, args=(n,)) for n in (10, 100)]
            for child in children: child.start()
            for child in children: child.join()
            print([child.exitcode for child in children])
    """)

    done = folder.wherry("run", "--on", "mps", "--virtual", "--result", "result.json", "program.py")

    assert (done.status, done.stdout) == (0, "[0, 0]\n")
    assert folder.result()["ledger"]["h2d_nbytes"] == 4 * 111
    assert folder.result()["ledger"]["processes"] == 3
    assert done.stderr.count("wherry:") == 1


@pytest.mark.slow
def test_a_plain_fork_is_counted_once(folder, script):
    """On mps, which a forked child may go on using; CUDA and XPU refuse (tests/rehearse/surface/test_processes.py)."""
    script("""
        import os, sys, torch
        torch.ones(1).to("mps")
        pid = os.fork()
        torch.ones(10).to("mps")
        if pid:
            os.waitpid(pid, 0)
    """)

    done = folder.wherry("run", "--on", "mps", "--virtual", "--result", "result.json", "program.py")

    assert done.status == 0
    assert folder.result()["ledger"]["h2d_nbytes"] == 4 * 21
    assert done.stderr.count("wherry:") == 1


@pytest.mark.slow
def test_data_loader_workers_take_part(folder, script):
    script("""
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        if __name__ == "__main__":
            data = TensorDataset(torch.arange(64.0), torch.arange(64))
            for context in ("fork", "spawn"):
                loader = DataLoader(data, 16, num_workers=2, pin_memory=True, multiprocessing_context=context)
                total = sum(x.to("cuda", non_blocking=True).sum() for x, y in loader)
                print(context, total)
    """)

    done = folder.wherry("run", "--on", "cuda", "--virtual", "--result", "result.json", "program.py")

    assert done.stdout == "".join(f"{name} tensor(2016., device='cuda:0')\n" for name in ("fork", "spawn"))
    assert done.status == 0
    assert folder.result()["ledger"]["processes"] == 5
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_killed_child_is_missing_and_nothing_else(folder, script):
    script("""
        import multiprocessing, os, signal, torch
        def work():
            torch.ones(100).to("mps")
            os.kill(os.getpid(), signal.SIGKILL)
        torch.ones(1).to("mps")
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start(); child.join(); print(child.exitcode)
    """)

    done = folder.wherry("run", "--on", "mps", "--virtual", "--result", "result.json", "program.py")

    assert (done.status, done.stdout) == (0, "-9\n")
    assert folder.result()["ledger"]["h2d_nbytes"] == 4


@pytest.mark.slow
def test_a_terminated_fork_dies_of_sigterm(folder, script):
    """The handler by which a run tells of SIGTERM is the parent's alone."""
    script("""
        import multiprocessing, time, torch
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start(); child.terminate(); child.join(); print(child.exitcode)
    """)

    done = folder.wherry("run", "--on", "cuda", "--virtual", "program.py")

    assert (done.status, done.stdout) == (0, "-15\n")


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_isolated_children_cannot_take_part(folder, script, flag):
    """Python reads no PYTHONPATH, or no sitecustomize. The twin of the tests above: it shows that they can fail."""
    script(f"""
        import subprocess, sys
        code = 'import sys; print("wherry" in sys.modules, [type(f).__name__ for f in sys.meta_path][0])'
        subprocess.run([sys.executable, {flag!r}, "-c", code], check=True)
        subprocess.run([sys.executable, "-c", code], check=True)
    """)

    done = folder.wherry("run", "--on", "cuda", "--virtual", "program.py")

    isolated, ordinary = done.stdout.splitlines()
    assert "TorchArrival" not in isolated
    assert ordinary == "False TorchArrival"


@pytest.mark.slow
def test_a_child_finds_its_own_sitecustomize_and_path(folder):
    """Whoever has a sitecustomize keeps it, and sys.path is as it was."""
    folder.write("lib/sitecustomize.py", "WHO = 'theirs'")
    code = "import sys, sitecustomize; print(sitecustomize.WHO, sitecustomize.__file__, sys.path)"
    env = {"PYTHONPATH": os.pathsep.join([str(folder.path / "lib"), os.environ.get("PYTHONPATH", "")])}
    expected = folder.python("-c", code, env=env)

    wherry_env = {"PYTHONPATH": env["PYTHONPATH"]}
    done = folder.wherry("run", "--on", "cuda", "--virtual", "--", sys.executable, "-c", code, env=wherry_env)

    assert done.stdout == expected.stdout
    assert done.stdout.startswith("theirs")


@pytest.mark.slow
@pytest.mark.parametrize("theirs", [None, "1 / 0"], ids=["none", "one that fails"])
def test_a_child_without_a_sitecustomize_is_as_it_was(folder, theirs):
    if theirs:
        folder.write("lib/sitecustomize.py", theirs)
    code = "import sys; print('sitecustomize' in sys.modules)"
    env = {"PYTHONPATH": os.pathsep.join([str(folder.path / "lib"), os.environ.get("PYTHONPATH", "")])}
    expected = folder.python("-c", code, env=env)

    done = folder.wherry("run", "--on", "cuda", "--virtual", "-q", "--", sys.executable, "-c", code, env=env)

    assert done.stdout == expected.stdout
    assert done.stderr == 2 * expected.stderr  # the first is that of wherry's own process


@pytest.mark.slow
def test_a_child_that_cannot_take_part_says_so_and_runs(folder):
    done = folder.python(
        "-c", "import torch; print(torch.__name__)",
        env={"PYTHONPATH": _on_path() + os.pathsep + os.environ.get("PYTHONPATH", ""), "WHERRY_ON": "nonsense"},
    )  # fmt: skip

    assert (done.status, done.stdout) == (0, "torch\n")
    assert len(done.stderr.splitlines()) == 1
    assert "takes no part in the rehearsal: UnknownDevice" in done.stderr


@pytest.mark.slow
def test_a_failing_child_is_told_of(folder):
    folder.write("train.py", "import torch\nx = torch.ones(2).to('cuda')\nx + torch.ones(2)\n")
    shell = f"echo hello; {sys.executable} train.py; exit 3"

    done = folder.wherry("run", "--on", "cuda", "--virtual", "--result", "result.json", "--", "sh", "-c", shell)

    assert (done.status, done.stdout) == (3, "hello\n")
    error = folder.result()["error"]
    assert (error["type"], error["file"], error["line"]) == ("RuntimeError", str(folder.path / "train.py"), 3)
    assert "train.py:3" in done.stderr.splitlines()[-1]
    traceback = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert traceback == [f'  File "{folder.path / "train.py"}", line 3, in <module>']


@pytest.mark.slow
def test_a_run_inside_a_run_is_its_own(folder, script):
    script("import torch; print(torch.cuda.is_available(), torch.backends.mps.is_available())")
    inner = [sys.executable, "-m", "wherry", "run", "--on", "mps", "--virtual", "program.py"]

    done = folder.wherry("run", "--on", "cuda", "--virtual", "--", *inner)

    assert done.stdout == "False True\n"
    first, second = done.stderr.splitlines()
    assert first.startswith("wherry: ran on mps:0")
    assert second.startswith("wherry: ran without torch")


TORCHRUN = {
    "command": ["--", str(Path(sys.executable).parent / "torchrun")],
    "module": ["-m", "torch.distributed.run"],
}


@pytest.mark.slow
@pytest.mark.parametrize("how", TORCHRUN)
def test_torchrun_ranks_take_part(folder, how):
    folder.write(
        "train.py",
        """
        import os, torch, torch.distributed as dist
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl")
        x = torch.ones(2, device="cuda") * (rank + 1)
        dist.all_reduce(x)
        if rank == 1:
            print(x, flush=True)
        dist.destroy_process_group()
        """,
    )

    done = folder.wherry(
        *("run", "--on", "cuda", "--virtual", "--count", "2", "--result", "result.json", *TORCHRUN[how]),
        *("--standalone", "--nproc-per-node", "2", "train.py"),
        env={"MASTER_ADDR": "127.0.0.1"},
    )

    assert (done.status, done.stdout) == (0, "tensor([3., 3.], device='cuda:1')\n")
    assert folder.result()["ledger"]["processes"] == 3


def _on_path() -> str:
    from wherry.run import onpath

    return str(Path(onpath.__file__).parent)
