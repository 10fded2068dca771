"""module-not-moved: a whole module was never moved.

Why      Each module moves by its own `.to`. A teacher, an encoder, a discriminator that is no part of the one that moved stays.
Fix      `model.to(device)`, once, right after it is made.
Source   PyTorch documentation, "torch.nn.Module.to".
"""

from __future__ import annotations

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    links = case.links
    if not links or links[-1].step.kind not in (Kind.PARAMETER, Kind.BUFFER) or not tree.is_module(links[-1].owner):
        return None
    assert case.path is not None
    # The outermost module of the path that is reached without leaving modules.
    position = len(links) - 1
    while position > 0 and tree.is_module(links[position - 1].owner) and links[position - 1].step.kind is Kind.MODULE:
        position -= 1
    name = case.path.root + "".join(step.text for step in case.path.steps[:position])
    kind = links[position].name
    other = f" {case.mover.text} ({case.where(case.mover.site)}) moved another." if case.mover is not None else ""
    made = f", made at {case.where(case.origin.site)}," if case.origin is not None else ""
    return Advice(
        f"{name} ({kind}){made} was never moved: its parameters are on {case.device}.{other}",
        f"Move it once, right after it is made: {name}.to({case.device_text})",
    )


CAUSE = Cause(
    "module-not-moved",
    50,
    recognise,
    (
        Example(
            """
                student = torch.nn.Linear(2, 2).to(DEVICE)
                teacher = torch.nn.Linear(2, 2)
                x = torch.ones(1, 2, device=DEVICE)
                print(student(x) - teacher(x))
            """,
            "teacher.weight",
            "teacher = ",
        ),
    ),
)
