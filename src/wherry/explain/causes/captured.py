"""captured: a function remembers a tensor: as a closure, a default argument, or a global.

Why      What a function captures is fixed when it is defined (a default argument) or stays with the variable around it
         (a closure, a global). No `.to` of a model reaches it.
Fix      Move it where it is used, or capture it on the device.
Source   Python documentation, "Function definitions", for when defaults are evaluated.
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.frames import Frame
from wherry.explain.written import default_of
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    frame = case.stray.frame
    if case.stray.node is not None and not isinstance(case.stray.node, ast.Name | ast.Attribute | ast.Subscript):
        return None  # made here
    root = case.name.partition("[")[0].partition(".")[0]
    if not root.isidentifier() or root == "self":
        return None
    how = _how(case, frame, root)
    if how is None:
        return None
    where = f" ({case.where(case.origin.site)})" if case.origin is not None else ""
    fix = f"Move it where it is used: {case.moved(case.name)}"
    if case.factory is not None and case.device_in_maker is not None and "default" not in how:
        fix = (
            f"Make it on the device: {case.with_device(case.factory, case.device_in_maker)}. Or move it where "
            f"it is used: {case.moved(case.name)}"
        )
    return Advice(f"{case.name} {how}{where}, on {case.device}; no .to of a model reaches it.", fix)


def _how(case: Case, frame: Frame, root: str) -> str | None:
    kind = frame.kind_of(root)
    if kind == "closure":
        return "is a variable that the function captured from around it"
    if kind == "argument":
        passed = case.origin is not None and case.origin.how == "default"
        default = default_of(frame.function, root)
        if passed or (default is not None and case.making is not None and any(n is case.making for n in [default])):
            return "is a default argument, made once when the function was defined"
        return None
    if kind == "global" and frame.code.co_name != "<module>" and frame.function is not None:
        return "is a global that was made once, when the file was read"
    if case.links and case.links[-1].step.kind in (Kind.CELL, Kind.DEFAULT, Kind.BOUND):
        return "is remembered by a function or a functools.partial"
    return None


CAUSE = Cause(
    "captured",
    52,
    recognise,
    (
        Example(
            """
                def scaled(x, gain=torch.full((2,), 3.0)):
                    return x * gain
                scaled(torch.ones(2, device=DEVICE))
            """,
            "gain",
            "def scaled",
        ),
        Example(
            """
                def make():
                    shift = torch.ones(2)
                    return lambda x: x + shift
                f = make()
                f(torch.ones(2, device=DEVICE))
            """,
            "shift",
            "shift = ",
        ),
        Example(
            """
                MEAN = torch.ones(3)
                def normalise(x):
                    return x - MEAN
                normalise(torch.ones(3, device=DEVICE))
            """,
            "MEAN",
            "MEAN = ",
        ),
    ),
)
