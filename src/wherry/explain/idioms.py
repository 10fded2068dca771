"""PyTorch's idioms as they stand in source text: factories, movements. Needs no torch."""

from __future__ import annotations

import ast

from wherry.explain.source import Source, shortened

FACTORIES = frozenset(
    """zeros ones empty full rand randn randint randperm arange linspace logspace eye tensor as_tensor from_numpy
    tril_indices triu_indices hann_window hamming_window bartlett_window blackman_window kaiser_window complex normal
    scalar_tensor sparse_coo_tensor empty_strided""".split()
)
LEGACY = frozenset(
    "Tensor FloatTensor LongTensor DoubleTensor HalfTensor IntTensor BoolTensor ByteTensor ShortTensor".split()
)
MOVES = ("to", "cuda", "xpu", "mps", "cpu")


def moves(node: ast.AST | None) -> bool:
    """Whether an expression is a call that moves: `x.to(device)`, `x.cuda()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (*MOVES, "type")


def receiver_of(node: ast.AST | None, source: Source) -> str:
    """A moving call as a sentence can use it: `net.to(DEVICE)`, also for `net = Net().to(DEVICE)`."""
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    call = f".{node.func.attr}({', '.join(source.text(a) for a in (*node.args, *node.keywords))})"
    parent = source.parent(node)
    while isinstance(parent, ast.Call | ast.Attribute):
        parent = source.parent(parent)
    if not isinstance(node.func.value, ast.Name | ast.Attribute):
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name | ast.Attribute):
            return source.text(parent.targets[0]) + call
        short = shortened(source.text(node.func.value))
        return (short if len(short) <= 30 else f"{source.text(node.func.value)[:24]}...") + call
    return source.text(node.func.value) + call


def atom(text: str) -> str:
    """An expression that a method can be called on: in parentheses where it needs them."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return text
    return (
        text
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.List | ast.Tuple)
        else f"({text})"
    )


def is_factory(node: ast.AST) -> bool:
    """Whether a call makes a tensor out of nothing, on the device it is told."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    base = node.func.value
    return isinstance(base, ast.Name) and base.id in ("torch", "th", "T") and node.func.attr in FACTORIES | LEGACY


def has_device(node: ast.Call) -> bool:
    return any(keyword.arg in ("device", None) for keyword in node.keywords)


def factory_in(node: ast.AST) -> ast.Call | None:
    """The torch factory without `device=` that an expression starts from."""
    if isinstance(node, ast.Call):
        if is_factory(node):
            return None if has_device(node) else node
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in MOVES:
                return None
            inner = factory_in(node.func.value)
            if inner is not None:
                return inner
        for argument in node.args:
            inner = factory_in(argument)
            if inner is not None:
                return inner
        return None
    if isinstance(node, ast.BinOp):
        return factory_in(node.left) or factory_in(node.right)
    if isinstance(node, ast.UnaryOp):
        return factory_in(node.operand)
    if isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        return factory_in(node.value)
    if isinstance(node, ast.List | ast.Tuple | ast.ListComp | ast.Dict):
        for child in ast.iter_child_nodes(node):
            inner = factory_in(child)
            if inner is not None:
                return inner
    return None
