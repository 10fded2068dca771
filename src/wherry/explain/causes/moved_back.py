"""moved-back: it was brought to the CPU, for a checkpoint or for NumPy, and stayed there.

Why      `Module.cpu()` and `Module.to("cpu")` move the module itself, not a copy. After saving it, the training loop goes on
         with a model on the CPU.
Fix      Save a copy of the tensors, `{k: v.cpu() for k, v in model.state_dict().items()}`, or move the module again.
Source   PyTorch documentation, "torch.nn.Module.cpu" and "torch.nn.Module.to" (both in place).
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import moves
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    node = case.making
    if not case.on_host or case.origin is None or not isinstance(node, ast.Call) or not moves(node):
        return None
    if not isinstance(node.func, ast.Attribute) or not (node.func.attr == "cpu" or "cpu" in ast.dump(node).lower()):
        return None
    text = " ".join(case.origin.source.text(node).split())
    where = case.where(case.origin.site)
    receiver = case.origin.source.text(node.func.value)
    if case.links and case.links[-1].step.kind in (Kind.PARAMETER, Kind.BUFFER):
        if isinstance(case.origin.source.parent(node), ast.DictComp | ast.ListComp | ast.GeneratorExp):
            return None  # a copy of each tensor, which something put in their place
        return Advice(
            f"{text} ({where}) moved the module itself to the CPU, and nothing moved it back before it was used again.",
            f"Move it back, {receiver}.to({case.device_named}), or save a copy and leave it in place: "
            f"{{k: v.cpu() for k, v in {receiver.removesuffix('.state_dict()')}.state_dict().items()}}",
        )
    return Advice(
        f"{text} ({where}) brought it to the CPU, and it is used with tensors on {case.expected} here.",
        f"Move it again where it is used: {case.moved(case.name)}",
    )


CAUSE = Cause(
    "moved-back",
    24,
    recognise,
    (
        Example(
            """
                model = torch.nn.Linear(2, 2).to(DEVICE)
                x = torch.ones(1, 2, device=DEVICE)
                model(x)
                saved = model.cpu().state_dict()
                model(x)
            """,
            "model.weight",
            "model.cpu()",
        ),
    ),
)
