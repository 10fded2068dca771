"""Expressions: names, operators, containers, comprehensions, and calls, which `functions` answers."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from wherry.explain.belief import functions, objects, python, pytorch
from wherry.explain.belief.signals import Enough
from wherry.explain.belief.values import MISSING, ROUNDS, Activation, Defaulting, Given, device, is_tensor
from wherry.tree import Described

if TYPE_CHECKING:
    from wherry.explain.belief.program import Run

# -- expressions


def value(run: Run, node: ast.AST | None) -> Any:
    """What an expression must be; `MISSING` where that is not known."""
    run.tick()
    method = _BY_TYPE.get(type(node))
    return MISSING if method is None else method(run, node)


def _constant(run: Run, node: ast.Constant) -> Any:
    return node.value


def _name(run: Run, node: ast.Name) -> Any:
    return look_up(run, node.id)


def look_up(run: Run, name: str) -> Any:
    """What a name means here."""
    here = run.here
    one: Activation | None = here
    while one is not None:
        if name in one.names:
            return one.names[name]
        one = one.around
    if name in here.globals:
        return here.globals[name]
    return python.builtin(name)


def _attribute(run: Run, node: ast.Attribute) -> Any:
    return objects.get_attribute(run, run.value(node.value), node.attr, node)


def _subscript(run: Run, node: ast.Subscript) -> Any:
    return python.get_item(run, run.value(node.value), run.value(node.slice), node)


def _slice(run: Run, node: ast.Slice) -> Any:
    parts = [None if part is None else run.value(part) for part in (node.lower, node.upper, node.step)]
    return slice(*parts) if all(part is None or type(part) is int for part in parts) else MISSING


def _namedexpr(run: Run, node: ast.NamedExpr) -> Any:
    value = run.value(node.value)
    run.set_name(node.target.id, value)
    return value


def _starred(run: Run, node: ast.Starred) -> Any:
    return run.value(node.value)


def _await(run: Run, node: ast.Await) -> Any:
    return run.value(node.value)


def _binop(run: Run, node: ast.BinOp) -> Any:
    left, right = run.value(node.left), run.value(node.right)
    return binary(run, node, left, node.op, right)


def binary(run: Run, node: ast.AST, left: Any, op: ast.operator, right: Any) -> Any:
    if is_tensor(left) or is_tensor(right):
        scalars = not isinstance(op, ast.MatMult)
        return run.meet(node, [("self", left), ("other" if scalars else "mat2", right)], scalars=scalars)
    for one, method in ((left, "__{}__"), (right, "__r{}__")):
        if type(one) is Described and one.role in ("object", "array"):
            if one.role == "array":
                return pytorch.array(run, node, [left, right])
            name = method.format(_METHODS.get(type(op), ""))
            return functions.call_method(run, one, name, Given([right if one is left else left], {}, node), MISSING)
    function = _OPERATORS.get(type(op))
    unknown = any(one is MISSING or type(one) is Described for one in (left, right))
    if function is None or unknown or not _small(left, op, right):
        return MISSING
    try:
        return function(left, right)
    except (ArithmeticError, TypeError, ValueError):
        return MISSING


def _unaryop(run: Run, node: ast.UnaryOp) -> Any:
    value = run.value(node.operand)
    if isinstance(node.op, ast.Not):
        known = truth(value)
        return MISSING if known is None else not known
    if is_tensor(value):
        return run.meet(node, [("self", value)])
    if type(value) in (int, float, bool):
        return -value if isinstance(node.op, ast.USub) else value
    return MISSING


def _boolop(run: Run, node: ast.BoolOp) -> Any:
    value: Any = MISSING
    for part in node.values:
        value = run.value(part)
        known = truth(value)
        if known is not None and known is isinstance(node.op, ast.Or):
            return value
        if known is None:
            for rest in node.values[node.values.index(part) + 1 :]:
                other = run.value(rest)
                value = other if type(other) is Described and value is MISSING else value
            return value
    return value


def _compare(run: Run, node: ast.Compare) -> Any:
    left = run.value(node.left)
    result: Any = MISSING
    for op, other in zip(node.ops, node.comparators, strict=True):
        right = run.value(other)
        result = _compared(run, node, left, op, right)
        if result is not True:
            return result
        left = right
    return result


def _compared(run: Run, node: ast.Compare, left: Any, op: ast.cmpop, right: Any) -> Any:
    if isinstance(op, ast.Is | ast.IsNot):
        if left is MISSING or right is MISSING:
            return MISSING
        same = left is right or (type(left) is type(right) and type(left) in (device, int, str) and left == right)
        return same is isinstance(op, ast.Is)
    if isinstance(op, ast.In | ast.NotIn):
        if type(right) in (dict, Defaulting, list, tuple, set, str) and _hashable(left):
            if type(right) is not str and any(key is MISSING for key in right):
                return MISSING
            return (left in right) is isinstance(op, ast.In)
        return MISSING
    if is_tensor(left) or is_tensor(right):
        return run.meet(node, [("self", left), ("other", right)])
    function = _COMPARES.get(type(op))
    if left is MISSING or right is MISSING or function is None or type(left) is Described or type(right) is Described:
        return MISSING
    return function(left, right)


def _ifexp(run: Run, node: ast.IfExp) -> Any:
    known = truth(run.value(node.test))
    if known is None:
        known = run.guess(node, True)
        value = run.value(node.body if known else node.orelse)
        return run.value(node.orelse if known else node.body) if value is MISSING else value
    return run.value(node.body if known else node.orelse)


def _list(run: Run, node: ast.List) -> Any:
    return list(_elements(run, node.elts))


def _tuple(run: Run, node: ast.Tuple) -> Any:
    return tuple(_elements(run, node.elts))


def _set(run: Run, node: ast.Set) -> Any:
    return {value for value in _elements(run, node.elts) if _hashable(value)}


def _elements(run: Run, parts: list[ast.expr]) -> Iterator[Any]:
    for one in parts:
        if isinstance(one, ast.Starred):
            yield from python.iterate(run, run.value(one.value), one, most=64)
        else:
            yield run.value(one)


def _dict(run: Run, node: ast.Dict) -> Any:
    made: dict[Any, Any] = {}
    for key, part in zip(node.keys, node.values, strict=True):
        value = run.value(part)
        if key is None:
            made.update(value if isinstance(value, dict) else {})
            continue
        known = run.value(key)
        made[known if _hashable(known) else MISSING] = value
    return made


def _joinedstr(run: Run, node: ast.JoinedStr) -> Any:
    text = ""
    for one in node.values:
        value = run.value(one.value if isinstance(one, ast.FormattedValue) else one)
        if type(value) not in (str, int, device):
            return MISSING
        text += str(value)
    return text


def _lambda(run: Run, node: ast.Lambda) -> Any:
    return functions.define(run, node)


def _listcomp(run: Run, node: ast.ListComp | ast.GeneratorExp) -> Any:
    return [run.value(node.elt) for _ in _rounds(run, node.generators)]


def _setcomp(run: Run, node: ast.SetComp) -> Any:
    return {v for v in [run.value(node.elt) for _ in _rounds(run, node.generators)] if _hashable(v)}


def _dictcomp(run: Run, node: ast.DictComp) -> Any:
    made: dict[Any, Any] = {}
    for _ in _rounds(run, node.generators):
        key = run.value(node.key)
        made[key if _hashable(key) else MISSING] = run.value(node.value)
    return made


def _rounds(run: Run, generators: list[ast.comprehension]) -> Iterator[None]:
    first, *rest = generators
    names = run.here.names
    bound = [part.id for part in ast.walk(first.target) if isinstance(part, ast.Name)]
    before = {name: names[name] for name in bound if name in names}
    for item in python.iterate(run, run.value(first.iter), first.iter, most=8):
        run.bind(first.target, item)
        if any(truth(run.value(test)) is False for test in first.ifs):
            continue
        if rest:
            yield from _rounds(run, rest)
        else:
            yield
    for name in bound:
        names.pop(name, None)
    names.update(before)


def _yield(run: Run, node: ast.Yield) -> Any:
    value = None if node.value is None else run.value(node.value)
    if run.here.yielded is not None:
        run.here.yielded.append(value)
        if len(run.here.yielded) >= ROUNDS:
            raise Enough
    return MISSING


def _yieldfrom(run: Run, node: ast.YieldFrom) -> Any:
    for item in python.iterate(run, run.value(node.value), node, most=ROUNDS):
        if run.here.yielded is not None:
            run.here.yielded.append(item)
    return MISSING


def _call(run: Run, node: ast.Call) -> Any:
    if isinstance(node.func, ast.Attribute):
        if objects.is_super(node.func.value):
            return objects.call_super(run, node.func.attr, _arguments(run, node))
        receiver = run.value(node.func.value)
        return functions.call_method(run, receiver, node.func.attr, _arguments(run, node))
    called = run.value(node.func)
    return functions.call(run, called, _arguments(run, node))


def _arguments(run: Run, node: ast.Call) -> Given:
    args = list(_elements(run, node.args))
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = run.value(keyword.value)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif isinstance(value, dict):
            kwargs.update((key, one) for key, one in value.items() if type(key) is str)
    return Given(args, kwargs, node)


_BY_TYPE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.NamedExpr: _namedexpr,
    ast.Starred: _starred,
    ast.Await: _await,
    ast.BinOp: _binop,
    ast.UnaryOp: _unaryop,
    ast.BoolOp: _boolop,
    ast.Compare: _compare,
    ast.IfExp: _ifexp,
    ast.List: _list,
    ast.Tuple: _tuple,
    ast.Set: _set,
    ast.Dict: _dict,
    ast.JoinedStr: _joinedstr,
    ast.Lambda: _lambda,
    ast.ListComp: _listcomp,
    ast.SetComp: _setcomp,
    ast.DictComp: _dictcomp,
    ast.Yield: _yield,
    ast.YieldFrom: _yieldfrom,
    ast.Call: _call,
    ast.GeneratorExp: _listcomp,
}

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}  # fmt: skip
_METHODS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.MatMult: "matmul", ast.Pow: "pow",
    ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.BitOr: "or", ast.BitAnd: "and",
}  # fmt: skip
_COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def truth(value: Any) -> bool | None:
    """Whether a value is true; None where that is not known."""
    if value is None or type(value) in (bool, int, float, str):
        return bool(value)
    if type(value) in (list, tuple, dict, set):
        return bool(value) or None  # what is empty here may have been filled by what is not known
    if type(value) is Described and value.role != "tensor":
        return True
    return None


def _hashable(value: Any) -> bool:
    return type(value) in (str, int, float, bool, bytes, type(None), Described, device) or (
        type(value) is tuple and all(_hashable(one) for one in value)
    )


def _small(left: Any, op: ast.operator, right: Any) -> bool:
    """Whether a computation cannot grow."""
    if isinstance(op, ast.Pow):
        return type(left) in (int, float) and type(right) in (int, float) and abs(left) < 1e4 and abs(right) < 16
    if isinstance(op, ast.Mult) and (type(left) in (str, list, tuple) or type(right) in (str, list, tuple)):
        sizes = [len(one) if type(one) in (str, list, tuple) else one for one in (left, right)]
        return all(type(size) is int for size in sizes) and sizes[0] * sizes[1] <= 64
    if isinstance(op, ast.Mod) and type(left) is str:
        return False
    if isinstance(op, ast.Add) and type(left) in (str, list, tuple):
        return type(left) is type(right) and len(left) + len(right) < 10_000
    return type(left) is not int or type(right) is not int or max(abs(left), abs(right)) < 1 << 64
