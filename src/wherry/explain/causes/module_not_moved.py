"""module-not-moved: a whole module was never moved.

Why      Each module moves by its own `.to`. A teacher, an encoder, a discriminator that is no part of the one that moved stays.
Fix      `model.to(device)`, once, right after it is made.
Source   PyTorch documentation, "torch.nn.Module.to".
"""

from __future__ import annotations

from wherry import tree
from wherry.explain.case import Case, links_of
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.tensors import facts_of
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    links = case.links
    if not links or links[-1].step.kind not in (Kind.PARAMETER, Kind.BUFFER) or not tree.is_module(links[-1].owner):
        return None
    path = case.whole
    assert path is not None
    links = links_of(path)
    # The outermost module of the path that is reached without leaving modules.
    position = len(links) - 1
    while position > 0 and tree.is_module(links[position - 1].owner) and links[position - 1].step.kind is Kind.MODULE:
        position -= 1
    name = path.prefix(position)
    kind = links[position].name
    if position == len(links) - 1 and _inner_moved(links[-1].owner, case):
        what = "buffer" if links[-1].step.kind is Kind.BUFFER else "parameter"
        ran = f", by {case.mover.text} ({case.where(case.mover.site)})" if case.mover is not None else ""
        return Advice(
            f"{case.name} is a {what} of {kind} itself, and only modules inside of it were moved{ran}.",
            f"Move the whole once, {name}.to({case.device_named}) from outside, or make this one with "
            f"device={case.device_named}.",
        )
    made = f", made at {case.where(case.origin.site)}," if case.origin is not None else ""
    ran = f"{case.mover.text} ({case.where(case.mover.site)})" if case.mover is not None else None
    if case.mover is not None and case.mover.text.startswith(f"{name}."):
        return Advice(
            f"{ran} moved {name} ({kind}), and what is in it now{made} was put there later, as "
            "load_state_dict(assign=True) does: "
            f"it is on {case.device}.",
            f"Move it again after that: {name}.to({case.device_named})",
        )
    other = f" {ran} moved another." if ran is not None else ""
    return Advice(
        f"{name} ({kind}){made} was never moved: its parameters are on {case.device}.{other}",
        f"Move it once, right after it is made: {name}.to({case.device_named})",
    )


def _inner_moved(module: object, case: Case) -> bool:
    for step, inner in tree.children(module):
        if step.kind is Kind.MODULE:
            for found in tree.search([("", inner)], most=300, deadline=case.scene.deadline):
                if (
                    found.steps
                    and found.steps[-1].kind is Kind.PARAMETER
                    and facts_of(found.value).device == case.stray.expected
                ):
                    return True
    return False


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
