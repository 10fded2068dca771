"""Statements: assignments, loops, conditions, and the way to the line that failed."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from wherry.explain.belief import functions, objects, python
from wherry.explain.belief.expressions import binary, truth
from wherry.explain.belief.signals import Arrived, Enough, Jump, Raised, Return, Spent
from wherry.explain.belief.values import DATA, MISSING, ROUNDS, Activation, Given, device, is_tensor
from wherry.tree import Described

if TYPE_CHECKING:
    from wherry.explain.belief.program import Run


def block(run: Run, body: list[ast.stmt]) -> None:
    """Go through the statements of a block."""
    for one in body:
        statement(run, one)


def statement(run: Run, node: ast.stmt) -> None:
    """Go through one statement, and look whether the failure has been come to."""
    run.tick()
    here = run.here
    before = here.line, here.last
    here.line, here.last = node.lineno, _end_of_head(node)
    run.arrive()
    try:
        _statement(run, node)
    except (Return, Jump, Raised, Enough, Spent, Arrived, RecursionError, MemoryError):
        raise
    except Exception:  # a computation of the program's that did not work out: nothing is known of it
        if run.strict:
            raise
    if isinstance(node, ast.For | ast.While | ast.If | ast.With | ast.Try):
        here.line, here.last = before


def _statement(run: Run, node: ast.stmt) -> None:
    if isinstance(node, ast.Expr):
        run.value(node.value)
    elif isinstance(node, ast.Assign):
        value = run.value(node.value)
        for target in node.targets:
            run.bind(target, value)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            run.bind(node.target, run.value(node.value))
    elif isinstance(node, ast.AugAssign):
        _augmented(run, node)
    elif isinstance(node, ast.Return):
        raise Return(None if node.value is None else run.value(node.value))
    elif isinstance(node, ast.If):
        _if(run, node)
    elif isinstance(node, ast.For | ast.AsyncFor):
        _for(run, node)
    elif isinstance(node, ast.While):
        for _ in range(2):
            if truth(run.value(node.test)) is False or _round(run, node.body):
                break
    elif isinstance(node, ast.With | ast.AsyncWith):
        _with(run, node)
    elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        _try(run, node)  # type: ignore[arg-type]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        run.here.names[node.name] = functions.define(run, node)
    elif isinstance(node, ast.ClassDef):
        run.here.names[node.name] = objects.define_class(run, node)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        functions.bring_in(run, node)
    elif isinstance(node, ast.Global | ast.Nonlocal):
        for name in node.names:
            run.here.declared[name] = "global" if isinstance(node, ast.Global) else "nonlocal"
    elif isinstance(node, ast.Break | ast.Continue):
        raise Jump(leaves=isinstance(node, ast.Break))
    elif isinstance(node, ast.Raise):
        raise Raised
    elif isinstance(node, ast.Match):
        run.value(node.subject)
        chosen = next((case for case in node.cases if run.leads_on(case.body)), node.cases[0])
        run.block(chosen.body)
    elif isinstance(node, ast.Delete):
        for target in node.targets:
            if isinstance(target, ast.Name):
                run.here.names.pop(target.id, None)


def _if(run: Run, node: ast.If) -> None:
    known = truth(run.value(node.test))
    if run.leads_on(node.body):
        known = True
    elif run.leads_on(node.orelse):
        known = False
    if known is None:
        # What leaves the block is the exception, not the rule.
        leaves = isinstance(node.body[-1], ast.Return | ast.Raise | ast.Break | ast.Continue)
        known = run.guess(node, not leaves)
    run.block(node.body if known else node.orelse)


def _for(run: Run, node: ast.For | ast.AsyncFor) -> None:
    over, here = run.value(node.iter), run.here
    if over is MISSING and _is_data(node.iter):
        over = run.tensor(run.home, node)
        over.meaning = DATA
    short = python.is_longer(over, ROUNDS)
    run.short += short
    try:
        _rounds(run, node, over, here)
    finally:
        run.short -= short


def _is_data(node: ast.expr) -> bool:
    """Whether what a loop runs over hands out batches, by what it is called."""
    text = ast.unparse(node).lower()
    return any(word in text for word in ("loader", "dataset", "batches", "dataiter"))


def _rounds(run: Run, node: ast.For | ast.AsyncFor, over: Any, here: Activation) -> None:
    for item in python.iterate(run, over, node, most=ROUNDS):
        run.bind(node.target, item)
        if _round(run, node.body):
            return
        here.line, here.last = node.lineno, _end_of_head(node)  # where the next item is asked for
    run.block(node.orelse)


def _round(run: Run, body: list[ast.stmt]) -> bool:
    """One round of a loop; whether it was the last."""
    try:
        run.block(body)
    except Jump as jump:
        return jump.leaves
    return False


def _with(run: Run, node: ast.With | ast.AsyncWith) -> None:
    default = run.default
    for item in node.items:
        value = run.value(item.context_expr)
        if type(value) is device:
            run.default = value.name
        elif type(value) is Described and value.role in ("object", "module"):
            value = functions.call_method(run, value, "__enter__", Given([], {}, item.context_expr), value)
        if item.optional_vars is not None:
            run.bind(item.optional_vars, value)
    try:
        run.block(node.body)
    finally:
        run.default = default


def _try(run: Run, node: ast.Try) -> None:
    try:
        run.block(node.body)
        run.block(node.orelse)
    except Raised:
        if not node.handlers:
            raise
        run.block(node.handlers[0].body)
    for handler in node.handlers:
        if run.leads_on(handler.body):
            run.block(handler.body)
    run.block(node.finalbody)


def _augmented(run: Run, node: ast.AugAssign) -> None:
    old, new = run.value(node.target), run.value(node.value)
    if is_tensor(old):
        run.meet(node, [("self", old), ("other", new)])
        if isinstance(node.target, ast.Subscript):
            run.bind(node.target, old)
        return
    if type(old) is list and type(new) in (list, tuple):
        old.extend(new)
        return
    run.bind(node.target, binary(run, node, old, node.op, new))


# -- binding


def bind(run: Run, target: ast.expr, value: Any) -> None:
    if isinstance(target, ast.Name):
        run.set_name(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(run, target, value)
    elif isinstance(target, ast.Starred):
        run.bind(target.value, value)
    elif isinstance(target, ast.Attribute):
        objects.set_attribute(run, run.value(target.value), target.attr, value, target)
    elif isinstance(target, ast.Subscript):
        python.set_item(run, run.value(target.value), run.value(target.slice), value, target)


def set_name(run: Run, name: str, value: Any) -> None:
    here = run.here
    how = here.declared.get(name)
    if how == "global":
        here.globals[name] = value
        return
    around = here.around if how == "nonlocal" else None
    while around is not None:
        if name in around.names:
            around.names[name] = value
            return
        around = around.around
    here.names[name] = value


def _unpack(run: Run, target: ast.Tuple | ast.List, value: Any) -> None:
    count = len(target.elts)
    starred = next((i for i, one in enumerate(target.elts) if isinstance(one, ast.Starred)), None)
    items = list(python.iterate(run, value, target, most=max(count, 8), least=count))
    if starred is not None:
        after = count - starred - 1
        middle = items[starred : len(items) - after]
        items = [*items[:starred], middle, *items[len(items) - after :]]
    items += [MISSING] * (count - len(items))
    for one, item in zip(target.elts, items, strict=False):
        run.bind(one, item)


# -- names


def _end_of_head(node: ast.stmt) -> int:
    """The last line of what a statement itself runs."""
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter.end_lineno or node.lineno
    if isinstance(node, ast.If | ast.While):
        return node.test.end_lineno or node.lineno
    if isinstance(node, ast.With | ast.AsyncWith):
        return node.items[-1].context_expr.end_lineno or node.lineno
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Try | ast.Match):
        return node.lineno
    return node.end_lineno or node.lineno
