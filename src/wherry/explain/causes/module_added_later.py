"""module-added-later: a module was put into another one after that had been moved.

Why      `.to()` moves what is there when it is called. A new head, an adapter, a layer made on the first forward comes after.
Fix      Move the new module, `net.head = nn.Linear(...).to(device)`, or call `net.to(device)` once more.
Source   PyTorch documentation, "torch.nn.Module.to".
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case, links_of
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.tensors import facts_of
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    path = case.whole
    links = [] if path is None else links_of(path)
    if not links or links[-1].step.kind not in (Kind.PARAMETER, Kind.BUFFER) or not tree.is_module(links[-1].owner):
        return None
    registered = [link for link in links if link.step.kind is Kind.MODULE]
    if not registered or any(link.step.kind is Kind.ATTRIBUTE for link in links if tree.is_module(link.owner)):
        return None
    # The rest of the same whole is on the device.
    top = next(link.owner for link in links if tree.is_module(link.owner))
    added = next((link for link in registered if _has_moved_parts(link.owner, case)), None)
    if added is None and not _has_moved_parts(top, case):
        return None
    position = links.index(added or registered[-1])
    assert path is not None
    name = path.prefix(position + 1)
    made = f" ({case.where(case.origin.site)})" if case.origin is not None else ""
    node = case.statement
    fix = f"Move the new module: {name}.to({case.device_named})"
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if not isinstance(target, ast.Attribute | ast.Subscript) or str(links[position].step.key) not in ast.dump(target):
        again = f", or call {case.mover.text} once more" if case.mover is not None else ""
        fix = f"Move what was added: {name}.to({case.device_named}){again}"
    elif isinstance(node, ast.Assign) and case.origin is not None:
        value = " ".join(case.origin.source.text(node.value).split())
        fix = f"Move the new module: {case.origin.source.text(target)} = {value}.to({case.device_named})"
    return Advice(
        f"{name} was made on {case.device}{made} and put into {links[position].name} after {case.passed_by} had moved the rest; "
        ".to() is a move, made once, and no setting.",
        fix,
    )


def _has_moved_parts(module: object, case: Case) -> bool:
    for found in tree.search([("", module)], most=600, deadline=case.scene.deadline):
        if not found.steps or found.steps[-1].kind not in (Kind.PARAMETER, Kind.BUFFER):
            continue
        if facts_of(found.value).device == case.stray.expected and found.value is not case.stray.value:
            return True
    return False


CAUSE = Cause(
    "module-added-later",
    38,
    recognise,
    (
        Example(
            """
                net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 4)).to(DEVICE)
                net[1] = torch.nn.Linear(2, 3)
                net(torch.ones(1, 2, device=DEVICE))
            """,
            "net[1].weight",
            "net[1] = ",
        ),
    ),
)
