"""Who may import whom: the arrows of the tree, as a table, read off the imports.

A new arrow changes the table in the same commit, with its reason. Imports inside functions and under TYPE_CHECKING count:
a layer is what a file must be understood with, not when it is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import wherry

ROOT = Path(wherry.__file__).parent

PYTHON = {"errors", "units", "callsite", "roster"}  # ground that knows only Python
DEVICES = {"storage", "tree", "dispatch", "events", "native_functions", "backends"}  # ground that knows devices
GROUND = PYTHON | DEVICES
ROOMS = {"rehearse", "ledger", "explain", "ops", "pick", "compile", "move", "feed", "where", "check"}
EDGES = {"cli", "pytest_plugin", "notebook"}

# What each part may import, besides itself. `__init__` is the package's own name: its version and public names.
ALLOWED: dict[str, set[str]] = {
    **dict.fromkeys(PYTHON, PYTHON),
    **dict.fromkeys(DEVICES, GROUND),
    **dict.fromkeys(ROOMS, GROUND),
    "rehearse": GROUND | {"ops"},  # raises for what a device has no kernel for
    "explain": GROUND | {"where", "ops"},  # names the tensor that strayed; what to write without a kernel
    "compile": GROUND | {"pick"},  # in a rehearsal, a function has the device that is rehearsed
    "move": GROUND | {"where"},  # names what a module leaves behind
    "feed": GROUND | {"move"},  # moves its batches
    "check": PYTHON - {"callsite"},  # stdlib only: never a tensor
    "run": GROUND | ROOMS,  # puts rooms together
    **dict.fromkeys(EDGES, GROUND | ROOMS | {"run", "__init__"}),
    "__init__": {"errors", "notebook", *ROOMS},  # re-exports, lazily; %load_ext wherry asks the package
    "__main__": {"cli"},
}


def part_of(path: Path) -> str:
    """The file or folder of the tree that a file belongs to: src/wherry/run/plan.py is part of run."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each module that is imported, with its line; `from wherry import x` is wherry.x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def arrows(source: str) -> Iterator[tuple[int, str]]:
    """The parts of wherry that a source imports."""
    for line, name in imports(ast.parse(source)):
        first, _, rest = name.partition(".")
        if first == "wherry":
            part = rest.partition(".")[0]
            yield line, part if part in ALLOWED else "__init__"


def trespasses(part: str, source: str) -> list[str]:
    allowed = ALLOWED[part] | {part}
    return [f"line {line}: {part} imports {target}" for line, target in arrows(source) if target not in allowed]


FILES = sorted(ROOT.rglob("*.py"))


def test_every_part_of_the_tree_is_in_the_table() -> None:
    assert {part_of(path) for path in FILES} <= ALLOWED.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    assert trespasses(part_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("backends", "from wherry.pick import pick"),
        ("errors", "import wherry.backends"),
        ("rehearse", "from wherry import run"),
        ("pick", "from wherry.rehearse import rehearse"),
        ("run", "def f():\n    from wherry.cli import main"),
        ("check", "from wherry import storage"),
        ("units", "from wherry import __version__"),
    ],
)
def test_an_arrow_that_is_not_drawn_is_noticed(part: str, source: str) -> None:
    """The twin: the test above would notice."""
    assert len(trespasses(part, source)) == 1


def private_torch(source: str) -> list[int]:
    """The lines that import a private module or name of torch."""
    return [
        line
        for line, name in imports(ast.parse(source))
        if name.split(".")[0] == "torch" and any(word.startswith("_") for word in name.split("."))
    ]


# The one door; and the folder that replaces names of torch where they stand.
PRIVATE = {ROOT / "dispatch.py", *(ROOT / "rehearse" / "impersonate").glob("*.py")}


@pytest.mark.parametrize("path", sorted({*FILES} - PRIVATE), ids=lambda path: str(path.relative_to(ROOT)))
def test_private_torch_is_imported_in_dispatch_only(path: Path) -> None:
    assert private_torch(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source", ["import torch._C", "from torch import _dynamo", "from torch.utils._pytree import tree_map"]
)
def test_a_private_import_is_noticed(source: str) -> None:
    """The twin: the test above would notice."""
    assert private_torch(source) == [1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_hold_one_idea(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 600
