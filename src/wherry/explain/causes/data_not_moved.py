"""data-not-moved: a batch, labels, or another input was never moved, or only a part of it.

Why      Loaders and samplers make CPU tensors. The loop has to move every one of them: inputs, labels, masks.
Fix      `labels = labels.to(device)`; for a dictionary, `batch = {k: v.to(device) for k, v in batch.items()}`.
Source   PyTorch tutorial, "Training a Classifier", on sending inputs and targets at every step.
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.tensors import facts_of


def recognise(case: Case) -> Advice | None:
    if not case.on_host or case.complaint.name not in ("MISMATCH", "GRADIENT"):
        return None
    frame = case.stray.frame
    name = case.name
    root = name.partition("[")[0].partition(".")[0]
    kind = frame.kind_of(root)
    if (
        kind == "closure"
        or root == "self"
        or any(tree.is_module(link.owner) or tree.is_optimizer(link.owner) for link in case.links[:1])
    ):
        return None
    moved = _moved_sibling(case)
    which = f"; {moved} did move" if moved is not None else ""
    came = ""
    loop = case.statement
    if case.origin is not None and isinstance(loop, ast.For) and case.making is not None:
        came = f" as it came out of {' '.join(case.origin.source.text(loop.iter).split())}"
    elif case.origin is not None:
        came = f" from {case.where(case.origin.site)}"
    return Advice(
        f"{name} is on {case.device}{came}, and was never moved{which}.",
        f"Move it too: {name}.to({case.device_text})",
    )


def _moved_sibling(case: Case) -> str | None:
    """What came with the stray and did move: another item of the same batch."""
    if case.stray.found is not None and case.stray.found.owners:
        owner = case.stray.found.owners[-1]
        prefix = case.stray.found.root + "".join(step.text for step in case.stray.found.steps[:-1])
        for step, value in tree.children(owner):
            if tree.is_tensor(value) and facts_of(value).device == case.stray.expected:
                return prefix + step.text
    return None


CAUSE = Cause(
    "data-not-moved",
    64,
    recognise,
    (
        Example(
            """
                net = torch.nn.Linear(2, 2).to(DEVICE)
                for x, y in [(torch.ones(3, 2), torch.zeros(3, 2))]:
                    loss = (net(x.to(DEVICE)) - y).square().mean()
            """,
            "y",
            "for x, y",
        ),
    ),
)
