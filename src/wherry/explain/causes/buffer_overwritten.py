"""buffer-overwritten: a registered buffer was given a new tensor after the module moved.

Why      `self.running = torch.zeros(n)` keeps the name registered and replaces the tensor. `.to()` is a move, made once, and
         no setting: a tensor that is assigned later is where it was made.
Fix      Write into the buffer, `self.running.zero_()`, or make the new one where the old one is: `torch.zeros_like(...)`.
Source   torch/nn/modules/module.py, `__setattr__`, for buffers.
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case, Link
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.written import class_sources
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    if not case.links or case.links[-1].step.kind not in (Kind.BUFFER, Kind.PARAMETER) or case.origin is None:
        return None
    link = case.links[-1]
    node = case.statement
    again = _registered_again(case, link)
    if again is not None:
        return again
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    target = next((t for t in targets if isinstance(t, ast.Attribute) and t.attr in (link.step.key, "data")), None)
    if target is None or (case.maker_name == "__init__" and isinstance(target.value, ast.Name)):
        return None
    name = case.origin.source.text(target)
    what = "buffer" if link.step.kind is Kind.BUFFER else "parameter"
    value = " ".join(case.origin.source.text(node.value).split()) if node.value is not None else "..."
    where = case.where(case.origin.site)
    instead = f"{name}.zero_()" if "zeros" in value else f"{name}.copy_({value})"
    if tree.class_attribute(link.owner, "forward") is tree.MISSING:
        return None
    return Advice(
        f"{name} = {value} ({where}) put a new tensor on {case.device} in the place of a {what} that had been moved. "
        ".to() moves what is there when it is called; it is no setting for what comes later.",
        f"Write into the {what} instead of replacing it: {instead}",
    )


def _registered_again(case: Case, link: Link) -> Advice | None:
    """A buffer that a method other than the constructor registers anew."""
    if link.step.kind is not Kind.BUFFER:
        return None
    for source, cls in class_sources(link.owner):
        for found in source.of_attribute(cls, str(link.step.key)):
            if found.how == "register_buffer" and getattr(found.function, "name", "__init__") != "__init__":
                value = " ".join(source.text(found.value).split()) if found.value is not None else "..."
                return Advice(
                    f"{case.name} is registered anew in {getattr(found.function, 'name', '')}() (line "
                    f"{found.node.lineno}), with a tensor on "
                    f"{case.device}: .to() moves what is there when it is called.",
                    f"Register it where the old one was: {case.moved(value, f'{case.name}.device')}, or "
                    f"use {case.device_beside}.",
                )
    return None


CAUSE = Cause(
    "buffer-overwritten",
    36,
    recognise,
    (
        Example(
            """
                class Norm(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.register_buffer('mean', torch.zeros(3))
                    def reset(self):
                        self.mean = torch.zeros(3)
                    def forward(self, x):
                        return x - self.mean
                norm = Norm().to(DEVICE)
                norm.reset()
                norm(torch.ones(3, device=DEVICE))
            """,
            "self.mean",
            "        self.mean = ",
        ),
    ),
)
