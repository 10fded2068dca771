"""other-device: it is on a device, but on another of several.

Why      `.cuda()` and `device="cuda"` mean the current device, by default the first. A model that is split over devices hands
         on its activations, and what meets them later (labels, masks, states) must follow.
Fix      Follow the other operand: `target.to(logits.device)`.
Source   PyTorch documentation, "CUDA semantics".
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example


def recognise(case: Case) -> Advice | None:
    if (
        case.stray.device in (None, "cpu")
        or case.stray.expected in (None, "cpu")
        or case.stray.device == case.stray.expected
    ):
        return None
    where = f" ({case.where(case.origin.site)})" if case.origin is not None else ""
    why = f"{case.name} was put on {case.device}{where}, and what it meets here is on {case.expected}."
    made = case.making
    if made is not None and _means_current(made):
        why += f" Without an index, cuda means the current device, {case.device}."
    return Advice(why, f"Follow the other operand: {case.moved(case.name)}")


def _means_current(node: ast.AST) -> bool:
    text = ast.dump(node)
    return "attr='cuda'" in text or "value='cuda'" in text


CAUSE = Cause(
    "other-device",
    58,
    recognise,
    (
        Example(
            """
                net = torch.nn.Linear(2, 2).to(DEVICE + ':1')
                x = torch.ones(1, 2).to(DEVICE)
                net(x)
            """,
            "x",
            "x = ",
            count=2,
        ),
    ),
)
