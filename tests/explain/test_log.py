"""Pasted logs: what the parser finds in them, and what the text of a program alone tells of its device error."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wherry.explain import logged
from wherry.explain.general import told
from wherry.explain.log import explain_log, last_device_error, tracebacks
from wherry.explain.message import read
from wherry.explain.source import Source

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
MISMATCH = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
TORCH = "/home/ada/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"


def plain(name: str) -> str:
    return re.sub(r"\s+", "", name).replace('"', "'")


def as_log(error: BaseException) -> str:
    """What Python prints of an exception, with the program's and torch's frames, as after a failure on a real device."""
    shown = traceback.TracebackException.from_exception(error)
    one: traceback.TracebackException | None = shown
    while one is not None:
        hidden = ("wherry", "conftest.py", "test_log.py")
        one.stack[:] = [frame for frame in one.stack if not set(hidden) & set(Path(frame.filename).parts[-3:])]
        one.stack[:] = [frame for frame in one.stack if "/wherry/rehearse/" not in Path(frame.filename).as_posix()]
        one = one.__cause__ or one.__context__
    return "".join(shown.format())


def without_marks(log: str) -> str:
    """As Python 3.10 prints it."""
    return "\n".join(line for line in log.split("\n") if not re.fullmatch(r"\s+[~^ ]+", line))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_text_alone_names_the_culprit_and_its_line(path: Path, run_program, monkeypatch) -> None:
    """Of the very programs on which the live post-mortem is held to the same."""
    case = json.loads(path.read_text(encoding="utf-8"))
    script = path.with_suffix(".py")
    _, error = run_program(script, case["device"], case["n_devices"])
    assert error is not None
    monkeypatch.setattr(logged, "replay", partial(logged.replay, strict=True))

    diagnosis = explain_log(as_log(error))

    assert diagnosis is not None
    culprit = diagnosis.culprit
    assert culprit is not None
    assert plain(culprit.name) in {plain(name) for name in (case["culprit"], *case["alt_culprits"])}
    assert culprit.origin is not None
    assert Path(culprit.origin.file).name == script.name
    assert culprit.origin.line in {case["origin_line"], *case["alt_origin_lines"]}


# -- the program's text


def program(tmp_path: Path, text: str, error: str = f"RuntimeError: {MISMATCH}", file: str = "train.py") -> str:
    """A log that ends at the lines marked "# 1", "# 2" ... of a program, the outermost first."""
    path = tmp_path / file
    path.write_text(text, encoding="utf-8")
    lines, source = text.splitlines(), Source("", text.splitlines(keepends=True))
    entries = []
    for number in range(1, 10):
        at = next((n for n, line in enumerate(lines, 1) if line.endswith(f"# {number}")), None)
        if at is None:
            break
        around = source.function_of(source.statement(at))
        shown = lines[at - 1].strip()
        entries.append(f'  File "{path}", line {at}, in {getattr(around, "name", "<module>")}\n    {shown}\n')
    return "Traceback (most recent call last):\n" + "".join(entries) + error + "\n"


BEGIN = "import copy, torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


@pytest.mark.parametrize(
    ("text", "name", "fix"),
    [
        pytest.param(
            "import numpy as np\nx = torch.from_numpy(np.ones(3)).to('xpu')\ny = x - 1  # 1",
            "x", "Make it float32 where it is made (line 5): torch.from_numpy(np.ones(3)).float(), or here: x.float()",
            id="an array",
        ),
        pytest.param(
            "x = torch.ones(3, device='xpu')\ny = x.double().sqrt()  # 1",
            "x", "Stay in float32: leave out .double(), or bring it back first: x.cpu().double()", id="double",
        ),
        pytest.param(
            "scaler = torch.amp.GradScaler('xpu')\nopt = torch.optim.SGD([torch.ones(1, device='xpu')])\nscaler.step(opt)  # 1",
            "scaler", "Use bfloat16, which needs no scaler: torch.autocast('xpu', torch.bfloat16)", id="a scaler",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "error", ["Required aspect fp64 is not supported on the device", "Kernel is incompatible with all devices in devs"]
)
def test_float64_on_arc_is_told_from_the_text(tmp_path: Path, text: str, name: str, fix: str, error: str) -> None:
    diagnosis = explain_log(program(tmp_path, BEGIN + text, f"RuntimeError: {error}"))

    assert diagnosis is not None
    assert diagnosis.culprit is not None
    assert (diagnosis.culprit.name, diagnosis.culprit.kind) == (name, "unsupported-dtype")
    assert diagnosis.fix == fix
    assert "does not compute" in diagnosis.why


@pytest.mark.parametrize(
    ("text", "name", "origin"),
    [
        pytest.param(
            "net = nn.Linear(2, 2)\nold = copy.deepcopy(net)\nnet.to('cuda')\nx = torch.ones(2, device='cuda')\nold(x)  # 1",
            "old.weight", 2, id="a copy that was made before the move",
        ),
        pytest.param(
            "tables = {}\ndef table(n):\n    if n not in tables:\n        tables[n] = torch.arange(n)\n    return tables[n]\n"
            "x = torch.ones(3, device='cuda')\ntable(3)\nx + table(3)  # 1",
            "tables[3]", 4, id="a cache",
        ),
        pytest.param(
            "def two():\n    return torch.ones(2), torch.ones(2).cuda()\na, b = two()\na + b  # 1",
            "a", 2, id="a function that returns two",
        ),
        pytest.param(
            "import missing\nmodel = missing.build().to('cuda')\nfor image, label in missing.loader():\n"
            "    loss = F.mse_loss(model(image.cuda()), label)  # 1",
            "label", 3, id="a model and a loader of somebody else",
        ),
        pytest.param(
            "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(2, 2)\n"
            "        self.b = [nn.Linear(2, 2)]\n    def forward(self, x):\n        return self.b[0](self.a(x))  # 2\n"
            "net = Net().to('cuda')\nnet(torch.ones(2).cuda())  # 1",
            "self.b[0].weight", 5, id="a module in a list",
        ),
        pytest.param(
            "net = nn.Linear(2, 2)\nopt = torch.optim.Adagrad(net.parameters())\nnet.cuda()\n"
            "net(torch.ones(2).cuda()).sum().backward()\nopt.step()  # 1",
            "opt.state[p]['sum']", 2, id="the state of an optimizer",
        ),
    ],
)  # fmt: skip
def test_a_program_is_read_in_the_order_it_runs(tmp_path: Path, text: str, name: str, origin: int) -> None:
    diagnosis = explain_log(program(tmp_path, BEGIN + text))

    assert diagnosis is not None
    assert diagnosis.culprit is not None
    assert diagnosis.culprit.name == name
    assert diagnosis.culprit.origin is not None
    assert diagnosis.culprit.origin.line == origin + BEGIN.count("\n")


def test_modules_of_the_program_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("import torch\nSCALE = torch.ones(3)\n", encoding="utf-8")

    diagnosis = explain_log(program(tmp_path, BEGIN + "from parts import SCALE\ntorch.ones(3).cuda() * SCALE  # 1"))

    assert diagnosis is not None
    assert diagnosis.culprit is not None
    assert diagnosis.culprit.name == "SCALE"
    assert str(diagnosis.culprit.origin).count("parts.py")


@pytest.mark.parametrize(
    "text",
    [
        "import missing\nx, y = missing.pair()\nx + y  # 1",
        "def meet(a, b):\n    return a @ b  # 2\nimport missing\nmissing.apply(meet)  # 1",
        "x = torch.ones(3, device='cuda')\ny = torch.ones(3, device='cuda')\nx + y  # 1",
    ],
)
def test_nobody_is_accused_without_evidence(tmp_path: Path, text: str) -> None:
    diagnosis = explain_log(program(tmp_path, BEGIN + text))

    assert diagnosis is not None
    assert diagnosis.culprit is None
    assert "cannot be told" in diagnosis.why
    assert ".device" in diagnosis.fix


def test_a_program_that_never_ends_is_left_in_time(tmp_path: Path) -> None:
    text = (
        BEGIN
        + "def f(n):\n    while True:\n        f(n + 1); f(n + 2)\nf(0)\nx = torch.ones(2) + torch.ones(2).cuda()  # 1"
    )
    begin = time.monotonic()

    assert explain_log(program(tmp_path, text)) is not None

    assert time.monotonic() - begin < 3


def test_a_source_that_has_changed_is_not_believed(tmp_path: Path) -> None:
    log = program(tmp_path, BEGIN + "a = torch.ones(2)\na + torch.ones(2).cuda()  # 1")
    (tmp_path / "train.py").write_text(BEGIN + "b = 1\nprint(b)\n", encoding="utf-8")

    diagnosis = explain_log(log, tmp_path)

    assert diagnosis is not None
    assert diagnosis.culprit is None
    assert diagnosis.why.startswith("train.py is not here, or has changed")


@pytest.mark.parametrize("file", ["/home/ada/project/train.py", r"C:\Users\ada\project\train.py", "~/project/train.py"])
def test_sources_are_found_below_a_folder(tmp_path: Path, file: str) -> None:
    log = program(tmp_path, BEGIN + "a = torch.ones(2)\na + torch.ones(2).cuda()  # 1")

    diagnosis = explain_log(log.replace(str(tmp_path / "train.py"), file), tmp_path)

    assert diagnosis is not None
    assert diagnosis.culprit is not None
    assert diagnosis.culprit.name == "a"


# -- the ways a log looks


LOG = f"""Traceback (most recent call last):
  File "/home/ada/train.py", line 30, in <module>
    main()
  File "/home/ada/train.py", line 12, in main
    return x + self.scale
           ~~^~~~~~~~~~~~
RuntimeError: {MISMATCH}
"""


def prefixed(prefix: str, log: str) -> str:
    return "\n".join(prefix + line for line in log.split("\n"))


WAYS: dict[str, Callable[[str], str]] = {
    "as Python prints it": lambda log: log,
    "without marks": without_marks,
    "with carriage returns": lambda log: log.replace("\n", "\r\n"),
    "in colour": lambda log: re.sub(r'("[^"\n]+"|\bmain\b|\d+)', "\x1b[35m\\1\x1b[0m", log),
    "of a rank": partial(prefixed, "[rank0]: "),
    "of two ranks at once": lambda log: "\n".join(f"[rank{n}]: {line}" for line in log.split("\n") for n in (0, 1)),
    "with times": partial(prefixed, "2024-05-01 12:00:07,123 ERROR: "),
    "of a container": partial(prefixed, "trainer-1  | "),
    "of an actor": partial(prefixed, "(Worker pid=41) "),
    "after a progress bar": lambda log: "  3%|#    | 3/100\r  4%|#    | 4/100\n" * 20 + log,
    "before the last words": lambda log: log + "srun: error: node7: task 0: Exited with exit code 1\n",
    "from a loader's worker": lambda log: (
        f'Traceback (most recent call last):\n  File "{TORCH}", line 9, in reraise\n    raise exception\n'
        f"RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nOriginal {log}\n"
    ),
    "from another process": lambda log: (
        f'concurrent.futures.process._RemoteTraceback: \n"""\n{log}"""\n\nThe above exception was the direct cause of the '
        f'following exception:\n\nTraceback (most recent call last):\n  File "/home/ada/pool.py", line 3, in <module>\n'
        f"    job.result()\nRuntimeError: {MISMATCH}\n"
    ),
    "in an exception group": lambda log: (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/usr/lib/python3.11/asyncio/taskgroups.py", line 3, in __aexit__\n  |     raise errors\n'
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        + prefixed("    | ", log)
        + "\n    +------------------------------------\n"
    ),
    "during another one": lambda log: (
        'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in f\n    d["k"]\nKeyError: \'k\'\n\n'
        "During handling of the above exception, another exception occurred:\n\n" + log
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_traceback_in_many_ways(way: str) -> None:
    found = last_device_error(tracebacks(WAYS[way](LOG)))

    assert found is not None
    assert [(one.file, one.line, one.function, one.code) for one in found.entries if one.is_users] == [
        ("/home/ada/train.py", 30, "<module>", "main()"),
        ("/home/ada/train.py", 12, "main", "return x + self.scale"),
    ]
    assert found.text.splitlines()[0] == MISMATCH
    assert found.entries[-1].span == (None if way == "without marks" else (7, 21))


NOTEBOOK = f"""---------------------------------------------------------------------------
RuntimeError                              Traceback (most recent call last)
Cell In[7], line 4
      2 model.eval()
      3 with torch.no_grad():
----> 4     y = model(x_test)
      5 print(y)

File ~/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1511, in Module._wrapped_call_impl(self, *args)
   1509     return self._compiled_call_impl(*args)
   1510 else:
-> 1511     return self._call_impl(*args)

Cell In[3], line 9, in Net.forward(self, x)
      8 def forward(self, x):
----> 9     return self.fc(x)

RuntimeError: {MISMATCH}
"""
COLAB = f"""RuntimeError                              Traceback (most recent call last)
[<ipython-input-11-b9e6>](https://localhost:8080/#) in <cell line: 0>()
     15 a = 1
---> 16 y = run(net, x)

3 frames
[<ipython-input-9-60e6>](https://localhost:8080/#) in forward(self, x, t)
     12     def forward(self, x, t):
---> 13         z = torch.cat([x, t], dim=1)
     14         return self.net(z)

RuntimeError: {MISMATCH}
"""
PYTEST = f"""=================================== FAILURES ===================================
_________________________________ test_forward _________________________________

    def test_forward():
        net = make("cuda")
>       out = net(torch.rand(2, 3, device="cuda"))

tests/test_net.py:15:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
{TORCH}:1751: in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

    def forward(self, x):
        y = self.fc(x)
>       return y * self.scale
E       RuntimeError: {MISMATCH}

src/net.py:10: RuntimeError
=========================== short test summary info ============================
FAILED tests/test_net.py::test_forward - RuntimeError: Expected all tensors to be on the same device, but f...
"""
TORCHSCRIPT = f"""Traceback (most recent call last):
  File "run.py", line 25, in <module>
    model(x)
RuntimeError: The following operation failed in the TorchScript interpreter.
Traceback of TorchScript (most recent call last):
  File "net.py", line 9, in forward
    def forward(self, x):
        y = self.a(x)
        return y + self.offset
               ~~~~~~~~~~~~~~~ <--- HERE
RuntimeError: {MISMATCH}
"""
COMPILED = """Traceback (most recent call last):
  File "run.py", line 25, in <module>
    model(x)
torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node with fake tensors: call_function <built-in function add>(*(\
FakeTensor(..., device='cuda:0', size=(3,)), FakeTensor(..., size=(3,))), **{}): got RuntimeError('Unhandled FakeTensor \
Device Propagation for aten.add.Tensor, found two different devices cuda:0, cpu')

from user code:
   File "net.py", line 12, in forward
    return x + self.offset

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""


@pytest.mark.parametrize(
    ("log", "entries"),
    [
        pytest.param(
            NOTEBOOK,
            [
                ("<ipython-input-7-cell>", 4, None, "y = model(x_test)"),
                ("<ipython-input-3-cell>", 9, "forward", "return self.fc(x)"),
            ],
            id="notebook",
        ),
        pytest.param(
            COLAB,
            [
                ("<ipython-input-11-b9e6>", 16, None, "y = run(net, x)"),
                ("<ipython-input-9-60e6>", 13, "forward", "z = torch.cat([x, t], dim=1)"),
            ],
            id="colab",
        ),
        pytest.param(
            PYTEST,
            [
                ("tests/test_net.py", 15, None, 'out = net(torch.rand(2, 3, device="cuda"))'),
                ("src/net.py", 10, None, "return y * self.scale"),
            ],
            id="pytest",
        ),
        pytest.param(TORCHSCRIPT, [("net.py", 9, "forward", "return y + self.offset")], id="TorchScript"),
        pytest.param(
            COMPILED,
            [("run.py", 25, "<module>", "model(x)"), ("net.py", 12, "forward", "return x + self.offset")],
            id="torch.compile",
        ),
    ],
)
def test_other_tools_tracebacks(log: str, entries: list[tuple[str, int, str | None, str]]) -> None:
    found = last_device_error(tracebacks(log))

    assert found is not None
    assert [(one.file, one.line, one.function, one.code) for one in found.entries if one.is_users] == entries


def test_the_last_of_several_device_errors_is_explained() -> None:
    found = last_device_error(tracebacks(LOG.replace("line 12", "line 11") + "retrying\n" + LOG))

    assert found is not None
    assert found.entries[-1].line == 12


def test_an_error_without_a_traceback_is_an_answer_too() -> None:
    diagnosis = explain_log(
        f"it says: \nRuntimeError: {MISMATCH} (when checking argument for argument mat1 in method wrapper_CUDA_addmm)"
    )

    assert diagnosis is not None
    assert diagnosis.why == "The argument mat1, the input of a linear layer, is on cpu, and the rest is on cuda:0."


@pytest.mark.parametrize(
    "text", ["", "hello", "KeyError: 'device'", "loss 0.3 on cuda:0 and cpu", LOG.replace(MISMATCH, "bad shape")]
)
def test_what_is_no_device_error_is_none(text: str) -> None:
    assert explain_log(text) is None


# -- where the line is all there is


@pytest.mark.parametrize(
    ("argument", "line", "name"),
    [
        ("target", "loss = criterion(output, y)", "y"),
        ("target", "return F.cross_entropy(model(x.to(d)), batch['y'], reduction='sum')", "batch['y']"),
        ("index", "h = self.embed(ids)", "ids"),
        ("mat2", "y = x @ self.table", "self.table"),
        ("mat1", "return self.fc(x)", "x"),
        ("mask", "a = a.masked_fill(mask, 0)", "mask"),
        ("weight", "F.cross_entropy(a, b, weight=self.w)", "self.w"),
        ("target", "loss = step(output, y)", None),
        ("mat1", "return self.b(self.a(x))", None),
        ("target", "criterion(*pair)", None),
        ("mat2", "(a @ b) @ c", None),
    ],
)
def test_a_call_that_leaves_no_choice_tells_the_argument(argument: str, line: str, name: str | None) -> None:
    message = read(
        "RuntimeError", f"{MISMATCH} (when checking argument for argument {argument} in method wrapper_CUDA_op)"
    )
    assert message is not None

    assert told(message, line) == name


# -- whatever is thrown at it


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_is_read(text: str) -> None:
    explain_log(text)


PIECES = [
    *LOG.splitlines(),
    *NOTEBOOK.splitlines(),
    *PYTEST.splitlines(),
    *TORCHSCRIPT.splitlines(),
    *COMPILED.splitlines(),
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=30), st.integers(0, 400))
def test_any_mangled_traceback_is_read(lines: list[str], cut: int) -> None:
    text = "\n".join(lines)

    explain_log(text)
    explain_log(text[cut:])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_mangled_program_is_read(tmp_path: Path, data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(CASES)).with_suffix(".py").read_text(encoding="utf-8").splitlines()
    kept = data.draw(st.lists(st.sampled_from(lines), min_size=1, max_size=40))
    at = data.draw(st.integers(1, len(kept)))
    (tmp_path / "mangled.py").write_text("\n".join(kept), encoding="utf-8")
    log = f'  File "{tmp_path / "mangled.py"}", line {at}, in <module>\n    {kept[at - 1]}\nRuntimeError: {MISMATCH}\n'

    assert explain_log("Traceback (most recent call last):\n" + log) is not None


@pytest.mark.slow
def test_a_log_of_many_megabytes_takes_no_longer_than_reading_it() -> None:
    noise = ("x" * 300 + "\n") * 7_000 + "INFO loss 0.123 on cuda:0 and cpu, 1.2 GiB\n" * 20_000
    begin = time.monotonic()

    found = last_device_error(tracebacks(noise + LOG))

    assert found is not None
    assert time.monotonic() - begin < 3


@pytest.mark.slow
def test_torch_is_not_needed(tmp_path: Path) -> None:
    log = program(tmp_path, BEGIN + "a = torch.ones(2)\na + torch.ones(2).cuda()  # 1")
    code = (
        "import sys\nfrom wherry.explain.log import explain_log\n"
        "print(explain_log(sys.stdin.read()).culprit.name, 'torch' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], input=log, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["a", "False"]
