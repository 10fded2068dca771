"""What importing wherry costs: no torch, and little time. Everybody who types `wherry --help` pays it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
{statement}
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""

ERROR = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"

# Programs that must not load torch, each as one line.
TORCH_FREE = {
    "import wherry": "import wherry",
    "errors": "import wherry; wherry.UnknownDevice",
    "backends": "from wherry import backends; backends.all(); backends.find('rocm').capabilities",
    "pick module": "import wherry.pick",
    "compile module": "import wherry.compile; wherry.compile",
    "dir": "import wherry; dir(wherry)",
    "command line": "from wherry.cli import app; app()",
    "explain log": f"from wherry.explain.log import explain_log; explain_log({ERROR!r})",
    "wherry where": "import wherry.cli.where, wherry.where.text; from wherry.where.files import sharded, zipped, safetensors",
    "wherry explain": "import wherry.cli.explain, wherry.explain.text",
    "python -m wherry": "import wherry.__main__",
}


def modules_after(statement: str) -> set[str]:
    """The top-level modules loaded in a new interpreter that ran `statement`."""
    program = PROGRAM.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("statement", TORCH_FREE.values(), ids=TORCH_FREE)
def test_torch_is_not_imported(statement: str) -> None:
    loaded = modules_after(statement)

    assert "wherry" in loaded
    assert not loaded & {"torch", "numpy"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement", ["import wherry; wherry.pick()", "from wherry import backends; backends.find('cpu').probe()"]
)
def test_torch_is_imported_when_it_is_asked_something(statement: str) -> None:
    """The twin: the test above would notice."""
    assert "torch" in modules_after(statement)


@pytest.mark.slow
def test_import_wherry_loads_only_itself_and_the_standard_library() -> None:
    bare = modules_after("pass")

    extra = modules_after("import wherry") - bare - set(sys.stdlib_module_names)

    assert extra == {"wherry"}
