"""The failing call computed on the CPU instead, in the program's own words: `F.ctc_loss(scores.cpu(), ...).to(scores.device)`."""

from __future__ import annotations

import ast
import copy

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.source import shortened
from wherry.explain.tensors import facts_of, is_operand


def detour(case: Case) -> str | None:
    """The code, or None where what the call is given is not on the device itself, but held by something that is called."""
    source, whole = case.scene.here.source, case.scene.node
    if not isinstance(whole, ast.Call) or holds_weights(case):
        return None
    call = copy.deepcopy(whole)
    device: str | None = None
    receiver = isinstance(whole.func, ast.Attribute) and _is_on_device(whole.func.value, case)
    if receiver:
        assert isinstance(whole.func, ast.Attribute)
        assert isinstance(call.func, ast.Attribute)
        device = source.text(whole.func.value)
        call.func.value = _to_cpu(whole.func.value)
    for position, argument in enumerate(whole.args):
        if _is_on_device(argument, case):
            device = device or source.text(argument)
            call.args[position] = _to_cpu(argument)
    for position, keyword in enumerate(whole.keywords):
        if keyword.arg == "device":
            device = source.text(keyword.value)
            call.keywords = [each for each in call.keywords if each.arg != "device"]
            return f"{ast.unparse(call)}.to({device})"
        if _is_on_device(keyword.value, case):
            device = device or source.text(keyword.value)
            call.keywords[position].value = _to_cpu(keyword.value)
    if device is None:
        return None
    home = f"{device if device.isidentifier() else case.name}.device"
    text = " ".join(ast.unparse(call).split())
    node: ast.AST = whole
    while isinstance(parent := source.parent(node), ast.Attribute | ast.Subscript) and parent.value is node:
        outer = source.parent(parent)
        if isinstance(outer, ast.Call) and outer.func is parent:
            break  # a method of the result, which is called where it is wanted
        text += ast.unparse(parent)[len(ast.unparse(parent.value)) :]
        node = parent
    if receiver and isinstance(whole.func, ast.Attribute) and whole.func.attr.endswith("_"):
        return f"{device}.copy_({text})"
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple) and parent.value is node:
        return f"[each.to({home}) for each in {text}]"
    return f"{text}.to({home})" if len(text) <= 160 else f"{shortened(text)}.to({home})"


def holds_weights(case: Case) -> bool:
    """Whether what is called holds tensors of its own, which would stay where they are: a layer, a network.

    Where its value is not known, whatever is not called by a name of PyTorch's may be one.
    """
    whole = case.scene.node
    if not isinstance(whole, ast.Call):
        return False
    value = case.scene.here.value(whole.func)
    if value is not tree.MISSING:
        held = vars(value) if hasattr(value, "__dict__") and not isinstance(value, type) else {}
        if "_modules" not in held or "_parameters" not in held:
            return False
        return any(map(is_operand, (found.value for found in tree.search([("", value)], most=2_000, depth=8))))
    root = whole.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id == "self" and isinstance(whole.func, ast.Attribute)


def _is_on_device(node: ast.expr, case: Case) -> bool:
    """Whether an argument is a tensor there, or an expression of one."""
    value = case.scene.here.value(node)
    if value is not tree.MISSING:
        return is_operand(value) and facts_of(value).device not in (None, "cpu")
    if not isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call | ast.Subscript | ast.Attribute):
        return False
    if isinstance(node, ast.Call) and any(
        keyword.arg == "device" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value == "cpu")
        for keyword in node.keywords
    ):
        return True  # made there
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "ndim", "device"):
        return False
    return any(
        is_operand(part) and facts_of(part).device not in (None, "cpu") for _, part in case.scene.here.leaves(node)
    )


def _to_cpu(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(copy.deepcopy(node), "cpu", ast.Load()), [], [])
