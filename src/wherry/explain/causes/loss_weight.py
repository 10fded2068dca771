"""loss-weight: a loss module holds weights, and was not moved.

Why      `nn.CrossEntropyLoss(weight=w)` is a module: w becomes its buffer. It is no part of the network, so moving the network
         does not move it.
Fix      Move the loss as well, `criterion.to(device)`, or build it from weights on the device.
Source   torch/nn/modules/loss.py, `_WeightedLoss`.
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.written import Origin, Trail, Where


def recognise(case: Case) -> Advice | None:
    module = case.module
    if module is None or not _is_loss(module):
        return None
    assert case.path is not None
    criterion = case.path.prefix(len(case.path.steps) - 1)
    what = case.path.steps[-1].key
    code = f"{criterion} = {criterion}.to({case.device_named})"
    built = _built(criterion, case)
    if built is not None and isinstance(built.node, ast.Call):
        code = f"{criterion} = {' '.join(built.source.text(built.node).split())}.to({case.device_named})"
    return Advice(
        f"{criterion} is a module of its own that holds {what} as a buffer. It is no part of the network, "
        + (f"so {case.passed_by} did not move it." if case.mover is not None else "and nothing moved it."),
        f"Move the loss as well, where it is made: {code}",
    )


def _is_loss(module: object) -> bool:
    if type(module) is tree.Described:
        return module.name.endswith("Loss")
    return tree.has_class(module, "torch.nn.modules.loss", "_Loss")


def _built(criterion: str, case: Case) -> Origin | None:
    """Where the loss was constructed."""
    trail, at = Trail(case.scene.frames), Where.of(case.stray.frame)
    return trail.of(ast.parse(criterion, mode="eval").body, at)


CAUSE = Cause(
    "loss-weight",
    32,
    recognise,
    (
        Example(
            """
                net = torch.nn.Linear(2, 3).to(DEVICE)
                criterion = torch.nn.CrossEntropyLoss(weight=torch.ones(3))
                x, y = torch.ones(4, 2, device=DEVICE), torch.zeros(4, dtype=torch.long, device=DEVICE)
                criterion(net(x), y)
            """,
            "criterion.weight",
            "criterion = ",
        ),
    ),
)
