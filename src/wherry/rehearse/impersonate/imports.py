"""Modules of torch that are imported for the first time inside a rehearsal see torch as it is.

torch loads much of itself late: the first optimizer imports torch._dynamo. Such a module looks at what this build has
(`torch.cuda._is_compiled()`) and keeps the answer for the life of the process, so it must not get a rehearsed one. While
one is being executed, its thread takes part in no rehearsal.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from wherry.dispatch import without_modes
from wherry.rehearse.surface import thread


def _see_torch_as_it_is(loader: Any) -> None:
    """Let this loader execute its module with its thread in no rehearsal. The instance is patched, so it stays what it is."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        mode, thread.mode = thread.mode, None
        try:
            with without_modes():
                execute(module)
        finally:
            thread.mode = mode

    loader.exec_module = exec_module


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if thread.mode is None or not fullname.startswith("torch."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            _see_torch_as_it_is(spec.loader)
        return spec


_FINDER = _Finder()


def watch() -> None:
    """See imports from now on. In place, because others add to this list and must find their additions afterwards."""
    sys.meta_path.insert(0, _FINDER)


def unwatch() -> None:
    """See imports no longer."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
