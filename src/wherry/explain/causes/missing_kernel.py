"""missing-kernel: the device has no kernel for an operator that the program calls.

Why      Every operator needs a kernel for each kind of device. CUDA has nearly all, MPS and XPU lack some, mostly of linear
         algebra, of special functions, and of losses and poolings that are rare. What a program calls may be made of others:
         `torch.linalg.svdvals` needs `_linalg_svd`, and the gradient of `torch.linalg.solve` needs `linalg_lu_solve`.
Fix      What computes the same of other operators, where that is known; else the CPU, for this call alone. An environment
         variable sends all of them through the CPU, if it is set before torch is imported: torch reads it when it loads.
Source   aten/src/ATen/mps/MPSFallback.mm; torch-xpu-ops, src/ATen/native/xpu/XPUFallback.template; PyTorch documentation,
         "MPS Environment Variables"; https://github.com/pytorch/pytorch/issues/141287
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wherry import backends, tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import atom
from wherry.explain.lacked import runs_backward
from wherry.explain.message import Complaint
from wherry.explain.on_the_cpu import detour, holds_weights
from wherry.explain.source import Site, shortened
from wherry.ops import instead


def recognise(case: Case) -> Advice | None:
    read = case.scene.message
    if read.complaint is not Complaint.KERNEL:
        return None
    operator = read.op or case.scene.op or "an operator"
    kind = (case.stray.device or read.others or "the device").partition(":")[0]
    stray, node = case.stray, case.stray.node
    if runs_backward(case.scene.node) and isinstance(node, ast.Call) and node is not case.scene.node:
        found = instead.in_words_of(node, operator=operator, backward=True)
        write = (
            f"Write there: {_shown(found)}" if found else f"Compute {stray.name} on the CPU, and move the result back."
        )
        why = f"The gradient of {stray.name} ({_line(case, node)}) needs {operator}, for which {kind} has no kernel."
        return Advice(why, _or_for_all(write, kind))
    why = f"{_calling(case)} needs {operator}, for which {kind} has no kernel."
    return Advice(why, _or_for_all(_otherwise(case, operator), kind))


def _calling(case: Case) -> str:
    node = case.scene.node
    text = case.scene.here.source.text(node) if isinstance(node, ast.Call) else ""
    return shortened(" ".join(text.split())) if text else "This line"


def _otherwise(case: Case, operator: str) -> str:
    """The equivalent in the program's own words, else in those of the table, else the same on the CPU."""
    for node in _around(case):
        found = instead.in_words_of(node, operator=operator)
        if found is not None and not found[0].through_cpu:
            return f"Write {_shown(found)}"
    there = detour(case)
    entry = _said_of(case, operator)
    if entry is not None:
        write = f"In place of {entry.in_place_of}, write {_shown((entry, '; '.join(entry.write.splitlines())))}"
        return write if there is None else f"{write.removesuffix('.')}. Or compute it on the CPU: {there}"
    if there is None and holds_weights(case):
        whole = case.scene.node
        assert isinstance(whole, ast.Call)
        called = shortened(case.scene.here.source.text(whole.func))
        alone = f"Inside of {called}, compute on the CPU what needs {operator}, and that alone"
        return f"{alone}: .cpu() before it, .to(device) after it."
    if there is None:
        return f"Compute it on the CPU: {atom(case.name)}.cpu(), and move the result back."
    return f"Compute it on the CPU, which gradients pass: {there}"


def _said_of(case: Case, operator: str) -> instead.Instead | None:
    """The equivalent for a call that is written in another way: with other arguments, through a module, in an optimizer."""
    call = case.scene.node
    if not isinstance(call, ast.Call):
        return None
    known = [entry for entry in instead.of(operator) if not entry.through_cpu and not entry.backward]
    alike = [entry for entry in known if entry.function == instead.called(call)]
    hidden = tree.is_module(case.scene.here.value(call.func)) or runs_backward(call)
    if hidden and len({entry.function for entry in known}) == 1:
        alike = known
    return alike[-1] if alike else None


def _shown(found: tuple[instead.Instead, str]) -> str:
    entry, code = found
    return f"{code}. {entry.note}".rstrip()


def _around(case: Case) -> Iterator[ast.expr]:
    """The failing call, and what the program does with its result: `torch.linalg.lstsq(a, b).solution`."""
    node: ast.AST | None = case.scene.node
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript | ast.BinOp):
        yield node
        node = case.scene.here.source.parent(node)


def _line(case: Case, node: ast.Call) -> str:
    return case.where(Site(case.stray.frame.file, node.lineno, None))


def _or_for_all(fix: str, kind: str) -> str:
    """With the variable that sends whatever has no kernel through the CPU."""
    variables = {b.kernels.variable for b in backends.all() if b.device_type == kind and b.kernels is not None} - {None}
    for name in sorted(filter(None, variables)):
        fix = f"{fix.removesuffix('.')}. Or set {name}=1 before torch is imported, for all such operators."
    return fix


CAUSE = Cause(
    "missing-kernel",
    10,
    recognise,
    (
        Example(
            """
                scores = torch.arange(6.0, device=DEVICE)
                best = torch.take(scores, torch.tensor([1, 2], device=DEVICE))
            """,
            "scores",
            "scores = ",
            device="mps",
        ),
        Example(
            """
                a = torch.eye(3, device=DEVICE)
                values, vectors = torch.linalg.eigh(a)
            """,
            "a",
            "a = ",
            device="mps",
        ),
        Example(
            """
                a = torch.eye(3, device=DEVICE, requires_grad=True)
                loss = torch.linalg.solve(a, a).sum()
                loss.backward()
            """,
            "torch.linalg.solve(a, a)",
            "loss = ",
            device="mps",
        ),
        Example(
            """
                steps = torch.logspace(0, 2, 5, device=DEVICE)
            """,
            "torch.logspace(0, 2, 5, device=DEVICE)",
            "steps = ",
            device="mps",
        ),
        Example(
            """
                x = torch.linspace(0, 1, 9, device=DEVICE)
                counts, edges = torch.histogram(x, 3)
            """,
            "x",
            "x = ",
        ),
        Example(
            """
                points = torch.ones(4, 2, device=DEVICE)
                counts = torch.histogramdd(points, [2, 2]).hist
            """,
            "points",
            "points = ",
            device="xpu",
        ),
    ),
)
