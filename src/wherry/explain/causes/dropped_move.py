"""dropped-move: `.to` was called, and what it returned was thrown away.

Why      `Tensor.to`, `.cuda()` and `.cpu()` return a new tensor and leave theirs where it is. Only modules move in place. A
         loop over a dictionary's values that assigns to its own variable throws the copies away just the same.
Fix      Keep the result: `x = x.to(device)`; `batch = {k: v.to(device) for k, v in batch.items()}`.
Source   PyTorch documentation, "torch.Tensor.to".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import MOVES
from wherry.explain.source import Function, Site, Source


def recognise(case: Case) -> Advice | None:
    if not case.on_host and case.complaint.name != "MISMATCH":
        return None
    names = {case.name, case.path_text, case.stray.via or case.name}
    if case.stray.found is not None:
        names.add(case.stray.found.root)
    roots = {name.partition("[")[0] for name in names}
    for source, function, frame in case.functions():
        before = frame.line
        for call, receiver in _thrown_away(source, function):
            if call.lineno > before and frame is not case.scene.here:
                continue
            text = source.text(receiver)
            site = Site(source.file, call.lineno, frame.code.co_name)
            if text in names:
                return _advice(case, source, call, text, site)
            over = _iterates(source, function, receiver)
            if over is not None and over.partition("[")[0].partition(".")[0] in roots | {
                r.partition(".")[0] for r in roots if r != "self"
            }:
                return _in_loop(case, source, call, over, site)
        for argument, inner, name in _calls_with(source, function, roots):
            for call, receiver in _thrown_away(source, inner):
                over = _iterates(source, inner, receiver) or source.text(receiver)
                if over.partition("[")[0].partition(".")[0] == name:
                    return _in_loop(
                        case,
                        source,
                        call,
                        argument + over.removeprefix(name),
                        Site(source.file, call.lineno, getattr(inner, "name", None)),
                    )
    return None


def _advice(case: Case, source: Source, call: ast.Call, text: str, site: Site) -> Advice:
    written = " ".join(source.text(call).split())
    return Advice(
        f"{written} ({case.where(site)}) returns a new tensor, and the result is thrown away: {text} still "
        f"names the one on {case.device}.",
        f"Keep the result: {text} = {written}",
    )


def _in_loop(case: Case, source: Source, call: ast.Call, over: str, site: Site) -> Advice:
    written = " ".join(source.text(call).split())
    device = ", ".join(source.text(a) for a in (*call.args, *call.keywords)) or f'"{case.expected}"'
    root = over.partition(".")[0]
    held = case.stray.frame.look_up(root) if root.isidentifier() else None
    if tree.class_attribute(held, "_fields") is not tree.MISSING:
        return Advice(
            f"{written} ({case.where(site)}) moves a copy that only the loop's variable names: what {root} "
            f"holds stays on {case.device}.",
            f"Build a new one: {root} = type({root})(*(value.to({device}) for value in {root}))",
        )
    return Advice(
        f"{written} ({case.where(site)}) moves a copy that only the loop's variable names: what {root} "
        f"holds stays on {case.device}.",
        f"Build a new one: {root} = {{key: value.to({device}) for key, value in {root}.items()}}"
        if ".values" in over or ".items" in over
        else f"Build a new one: {root} = [value.to({device}) for value in {root}]",
    )


def _thrown_away(source: Source, function: ast.AST | None) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Moving calls whose result nobody keeps: a statement of its own, or an assignment to the variable of a loop."""
    for call in source.calls(function, *MOVES):
        if source.function_of(call) is not function:
            continue
        assert isinstance(call.func, ast.Attribute)
        parent = source.parent(call)
        if isinstance(parent, ast.ListComp) and parent.elt is call:
            parent = source.parent(parent)
        if isinstance(parent, ast.Expr) or (
            isinstance(parent, ast.Assign)
            and len(parent.targets) == 1
            and isinstance(parent.targets[0], ast.Name)
            and isinstance(call.func.value, ast.Name)
            and parent.targets[0].id == call.func.value.id
            and _loop_of(source, parent, parent.targets[0].id) is not None
            and not _used_after(source, parent, parent.targets[0].id)
        ):
            yield call, call.func.value


def _loop_of(source: Source, node: ast.AST, name: str) -> ast.For | ast.comprehension | None:
    """The loop whose variable a name is."""
    while (parent := source.parent(node)) is not None:
        if isinstance(parent, ast.For) and any(
            isinstance(n, ast.Name) and n.id == name for n in ast.walk(parent.target)
        ):
            return parent
        if isinstance(parent, ast.ListComp):
            for part in parent.generators:
                if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(part.target)):
                    return part
        node = parent
    return None


def _used_after(source: Source, statement: ast.AST, name: str) -> bool:
    loop = _loop_of(source, statement, name)
    if not isinstance(loop, ast.For):
        return True
    line = getattr(statement, "end_lineno", 0)
    return any(isinstance(n, ast.Name) and n.id == name and n.lineno > line for n in ast.walk(loop))


def _iterates(source: Source, function: ast.AST | None, receiver: ast.expr) -> str | None:
    """What the loop runs over whose variable is moved: "batch.values()"."""
    if not isinstance(receiver, ast.Name):
        return None
    loop = _loop_of(source, receiver, receiver.id)
    return None if loop is None else source.text(loop.iter)


def _calls_with(source: Source, function: Function | None, roots: set[str]) -> Iterator[tuple[str, Function, str]]:
    """Functions of the file that were called with one of some names: the name, the function, its own name for it."""
    if source.tree is None:
        return
    own = {node.name: node for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(function or source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in own:
            continue
        inner = own[node.func.id]
        for argument, parameter in zip(node.args, inner.args.args, strict=False):
            if isinstance(argument, ast.Name) and argument.id in roots:
                yield argument.id, inner, parameter.arg


CAUSE = Cause(
    "dropped-move",
    20,
    recognise,
    (
        Example(
            """
                x = torch.ones(3, device=DEVICE)
                mask = torch.ones(3)
                mask.to(DEVICE)
                print(x * mask)
            """,
            "mask",
            "mask = ",
        ),
        Example(
            """
                batch = {'x': torch.ones(3), 'y': torch.ones(3)}
                weight = torch.ones(3, device=DEVICE)
                for value in batch.values():
                    value = value.to(DEVICE)
                print(batch['x'] * weight)
            """,
            "batch['x']",
            "batch = ",
        ),
    ),
)
