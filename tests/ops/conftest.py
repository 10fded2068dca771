"""What scripts/reach.py sees when it runs PyTorch's database of operators: twenty seconds, once."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "reach.py"


@pytest.fixture(scope="session")
def reach_script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("reach_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def derived(reach_script: ModuleType) -> Any:
    """Who calls what, derived for the torch that is installed."""
    return reach_script.derive()
