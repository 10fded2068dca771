"""Modules of torch that are imported for the first time inside a rehearsal see torch as it is.

torch loads much of itself late: the first optimizer imports torch._dynamo. Such a module looks at what this build has
(`torch.cuda._is_compiled()`) and keeps the answer for the life of the process, so it must not get a rehearsed one. While
one is being executed, its thread takes part in no rehearsal.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from wherry.dispatch import without_modes
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.surface import thread


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        mode, thread.mode = thread.mode, None
        try:
            with without_modes():
                self.loader.exec_module(module)
        finally:
            thread.mode = mode


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if thread.mode is None or not fullname.startswith("torch."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader)
        return spec


_FINDER = _Finder()


def patches() -> Iterator[Patch]:
    """The finder, at the head of a copy of sys.meta_path."""
    yield Patch(sys, "meta_path", [_FINDER, *sys.meta_path])
