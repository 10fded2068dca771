"""copy-before-move: a copy of a model was made before the model was moved.

Why      `copy.deepcopy(model)` copies the tensors too. Moving the model later does not move its copy: an average of the
         weights, a target network, a frozen reference.
Fix      Move first, then copy; or move the copy as well.
Source   PyTorch documentation, "torch.optim.swa_utils.AveragedModel", which takes a device for this reason.
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example

_COPIES = ("deepcopy", "copy", "clone", "state_dict", "AveragedModel")


def recognise(case: Case) -> Advice | None:
    node = case.making
    if not isinstance(node, ast.expr) or not case.on_host or case.origin is None:
        return None
    copied = next((n for n in ast.walk(node) if isinstance(n, ast.Call) and _name(n) in _COPIES), None)
    if copied is None or (case.factory is not None):
        return None
    text = " ".join(case.origin.source.text(copied).split())
    argument = copied.args[0] if copied.args else copied.func.value if isinstance(copied.func, ast.Attribute) else None
    original = case.origin.source.text(argument) if argument is not None else "the original"
    held = case.held_by or case.name
    mover = f"{case.mover.text} ({case.where(case.mover.site)})" if case.mover is not None else f"{original} was moved"
    whole = isinstance(case.statement, ast.Assign) and any(
        part is copied for part in (case.statement.value, getattr(case.statement.value, "func", None))
    )
    also = f", or move the copy as well: {_copy_name(case, copied)}.to({case.device_named})" if whole else "."
    return Advice(
        f"{held} belongs to a copy, {text} ({case.where(case.origin.site)}), that was made while "
        f"{original} was on {case.device}: "
        f"{mover} moves the original, not its copy.",
        f"Copy after {case.mover.text if case.mover is not None else 'the move'}{also}",
    )


def _name(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def _copy_name(case: Case, copied: ast.Call) -> str:
    node = case.statement
    if case.origin is not None and isinstance(node, ast.Assign):
        return case.origin.source.text(node.targets[0])
    assert case.origin is not None
    return " ".join(case.origin.source.text(copied).split())


CAUSE = Cause(
    "copy-before-move",
    46,
    recognise,
    (
        Example(
            """
                import copy
                net = torch.nn.Linear(2, 2)
                target = copy.deepcopy(net)
                net.to(DEVICE)
                x = torch.ones(1, 2, device=DEVICE)
                print(net(x) - target(x))
            """,
            "target.weight",
            "target = ",
        ),
    ),
)
