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
    which = f"; {moved} is on {case.expected}" if moved is not None else ""
    came = ""
    loop = case.statement
    if case.origin is not None and isinstance(loop, ast.For) and case.making is not None:
        came = f" as it came out of {' '.join(case.origin.source.text(loop.iter).split())}"
    elif case.origin is not None:
        came = f" from {case.where(case.origin.site)}"
    packed = (
        case.stray.found is not None
        and case.stray.found.owners
        and tree.class_name(case.stray.found.owners[-1]) == "PackedSequence"
    )
    if packed and case.stray.found is not None:
        root = case.stray.found.root
        return Advice(
            f"{root} is a packed sequence on {case.device}{came}, and was never moved.",
            f"Move it whole: {root} = {root}.to({case.device_text})",
        )
    outer = _of_the_caller(case)
    if outer is not None:
        theirs, where = outer
        return Advice(
            f"{name} is {theirs} of {where}, on {case.device}{came}, and was never moved{which}.",
            f"Move it there: {theirs} = {theirs}.to({case.device_named})",
        )
    moved = case.moved(name, case.device_text)
    if (
        isinstance(case.stray.node, ast.Name | ast.Attribute | ast.Subscript)
        and not case.in_place
        and not case.stray.via
    ):
        moved = f"{name} = {moved}"
    return Advice(f"{name} is on {case.device}{came}, and was never moved{which}.", f"Move it too: {moved}")


def _of_the_caller(case: Case) -> tuple[str, str] | None:
    """What the caller calls an argument, and who that is."""
    frame, frames = case.stray.frame, case.scene.frames
    if not case.name.isidentifier() or frame.kind_of(case.name) != "argument" or frame not in frames:
        return None
    further = frames[frames.index(frame) + 1 :]
    if not further or case.stray.value is tree.MISSING or type(case.stray.value) is tree.Described:
        return None
    for node, value in further[0].leaves(further[0].node):
        if value is case.stray.value and isinstance(node, ast.Name):
            function = further[0].code.co_name
            return node.id, f"{function}()" if not function.startswith("<") else f"line {further[0].line}"
    return None


def _moved_sibling(case: Case) -> str | None:
    """What came with the stray and did move: another item of the same batch."""
    if case.stray.found is not None and case.stray.found.owners:
        owner = case.stray.found.owners[-1]
        prefix = case.stray.found.prefix(len(case.stray.found.steps) - 1)
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
