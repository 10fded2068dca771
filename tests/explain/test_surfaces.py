"""Where an explanation appears: below tracebacks, as a note, in reports of pytest, in notebooks; and where it does not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import wherry
from wherry.explain.context import is_explained

BUG = """
    import torch
    scale = torch.ones(2)
    print("before", flush=True)
    torch.ones(2, device="cuda") * scale
"""


def test_a_block_adds_a_note_and_lets_the_exception_go_on() -> None:
    explained = wherry.explain()
    scale = torch.ones(2)
    with wherry.rehearse("cuda"), pytest.raises(RuntimeError, match="found at least two devices") as caught, explained:
        torch.ones(2, device="cuda") * scale

    assert is_explained(caught.value)
    assert explained.diagnosis is not None
    assert explained.diagnosis.culprit is not None
    assert explained.diagnosis.culprit.name == "scale"


def test_a_note_is_added_once() -> None:
    with wherry.rehearse("cuda"), pytest.raises(RuntimeError) as caught, wherry.explain(), wherry.explain():
        torch.ones(2, device="cuda") * torch.ones(2)

    assert len(caught.value.__notes__) == 1  # type: ignore[attr-defined]


def test_a_decorated_function_is_explained() -> None:
    @wherry.explain()
    def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y

    with wherry.rehearse("cuda"), pytest.raises(RuntimeError) as caught:
        multiply(torch.ones(2), torch.ones(2, device="cuda"))

    assert is_explained(caught.value)


@pytest.mark.parametrize("error", [ValueError("too many values"), KeyboardInterrupt(), RuntimeError("out of luck")])
def test_other_errors_pass_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, wherry.explain():
        raise error

    assert not hasattr(caught.value, "__notes__")
    assert wherry.explain_exception(error) is None


def test_a_missing_kernel_with_no_tensor_in_sight_has_no_culprit() -> None:
    """The variable is still named, which is the backend's to know."""
    text = "The operator 'aten::_ctc_loss' is not currently implemented for the MPS device. If you want this op"
    with pytest.raises(NotImplementedError) as caught:
        raise NotImplementedError(text)

    diagnosis = wherry.explain_exception(caught.value)

    assert diagnosis is not None
    assert diagnosis.culprit is None
    assert diagnosis.op == "aten::_ctc_loss"
    assert "PYTORCH_ENABLE_MPS_FALLBACK=1" in diagnosis.fix


def test_nothing_is_installed_before_something_fails() -> None:
    before = dict(vars(torch.Tensor)), dict(vars(torch.nn.Module)), sys.gettrace(), sys.getprofile(), sys.excepthook

    with wherry.explain():
        inside = dict(vars(torch.Tensor)), dict(vars(torch.nn.Module)), sys.gettrace(), sys.getprofile(), sys.excepthook

    assert before == inside


@pytest.mark.slow
def test_a_run_explains_below_the_traceback_and_in_the_result(folder, script) -> None:
    script(BUG)

    done = folder.wherry("run", "--on", "cuda", "--virtual", "--result", "r.json", "program.py")

    assert done.stdout == "before\n"
    trace, _, explanation = done.stderr.partition("\nwherry: scale is on cpu")
    assert trace.splitlines()[-1].startswith("RuntimeError: ")
    assert "made at line 3" in explanation
    error = json.loads((folder.path / "r.json").read_text())["error"]
    assert error["op"] == "aten::mul.Tensor"
    assert error["culprit"]["origin"]["line"] == 3
    assert [operand["device"] for operand in error["operands"]] == ["cuda:0", "cpu"]


@pytest.mark.slow
def test_a_quiet_run_says_nothing_and_writes_all(folder, script) -> None:
    script(BUG)

    done = folder.wherry("run", "--on", "cuda", "--virtual", "--quiet", "--result", "r.json", "program.py")

    assert "wherry: " not in done.stderr
    assert json.loads((folder.path / "r.json").read_text())["error"]["culprit"]["name"] == "scale"


@pytest.mark.slow
def test_children_and_threads_are_explained(folder, script) -> None:
    script("""
        import subprocess, sys, threading, torch
        x = torch.ones(2, device="cuda")
        thread = threading.Thread(target=lambda: x + torch.zeros(2))
        thread.start(); thread.join()
        code = "import torch; bias = torch.ones(2); torch.ones(2, device='cuda') + bias"
        subprocess.run([sys.executable, "-c", code])
    """)

    done = folder.wherry("run", "--on", "cuda", "--virtual", "program.py")

    assert "wherry: torch.zeros(2) is on cpu" in done.stderr
    assert "wherry: bias is on cpu" in done.stderr


@pytest.mark.slow
def test_a_worker_of_a_loader_is_explained_from_its_traceback(folder, script) -> None:
    script("""
        import torch
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                x = torch.ones(2, device="cuda")
                offset = torch.zeros(2)
                return x + offset
        if __name__ == "__main__":
            for batch in torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="spawn"):
                print(batch)
    """)

    done = folder.wherry("run", "--on", "cuda", "--virtual", "--result", "r.json", "program.py")

    culprit = json.loads((folder.path / "r.json").read_text())["error"]["culprit"]
    assert culprit is not None, done.stderr
    assert culprit["name"] == "offset"


@pytest.mark.slow
def test_pytest_shows_it_in_the_report_of_a_failed_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import torch, wherry\n"
        "@wherry.rehearse('cuda')\n"
        "def test_it():\n"
        "    bias = torch.ones(2)\n"
        "    torch.ones(2, device='cuda') + bias\n"
        "def test_other():\n"
        "    raise ValueError('no device')\n",
        encoding="utf-8",
    )

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert done.stdout.count("wherry: ") == 1
    assert "wherry: bias is on cpu, and should be on cuda:0" in done.stdout
    assert "mode.py" not in done.stdout  # the frames of the rehearsal are hidden


def test_the_plugin_imports_no_torch_and_little_else() -> None:
    program = (
        "import sys, wherry.pytest_plugin; print([m for m in sys.modules if m.split('.')[0] in ('torch', 'rich')])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_a_notebook_shows_it_below_the_traceback_of_a_cell(tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    program = tmp_path / "notebook.py"
    program.write_text(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance(history_manager=None)\n"
        "shell.colors = 'nocolor'\n"
        "shell.run_cell('%load_ext wherry')\n"
        "shell.run_cell('import torch, wherry\\nrehearsal = wherry.rehearse(\"cuda\")\\nrehearsal.__enter__();')\n"
        "shell.run_cell('bias = torch.ones(2)')\n"
        "shell.run_cell('torch.ones(2, device=\"cuda\") + bias')\n"
        "shell.run_cell('1 / 0')\n"
        "shell.run_cell('%unload_ext wherry')\n"
        "shell.run_cell('torch.ones(2, device=\"cuda\") - bias')\n",
        encoding="utf-8",
    )

    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "IPYTHONDIR": str(tmp_path), "NO_COLOR": "1"},
    )

    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)
    assert said.count("wherry: bias is on cpu, and should be on cuda:0") == 1, done.stderr
    loaded, _, unloaded = done.stdout.partition("ZeroDivisionError")
    assert "mode.py" not in loaded
    assert "mode.py" in unloaded  # the twin: there is something to leave out
