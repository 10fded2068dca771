"""Functions of the program: defining, decorating and calling them; and imports, which bring them in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wherry.explain.belief import layers, library, objects, python, pytorch
from wherry.explain.belief.signals import Enough, Jump, Raised, Return
from wherry.explain.belief.values import (
    MISSING,
    Activation,
    Closure,
    Given,
    device,
    is_module,
    is_tensor,
    part,
)
from wherry.explain.source import Function, Source
from wherry.tree import Described, Kind, Step

if TYPE_CHECKING:
    from wherry.explain.belief.program import Run

_CACHES = (
    "lru_cache",
    "cache",
    "cached_property",
    "functools.lru_cache",
    "functools.cache",
    "functools.cached_property",
)
_DEEPEST = 40


# -- defining


def define(run: Run, node: Function, cls: Described | None = None) -> Any:
    """The value of a `def` or a `lambda`, with its decorators applied."""
    here = run.here
    spec = node.args
    defaults: dict[str, Any] = {}
    plain = [*spec.posonlyargs, *spec.args]
    for argument, default in zip(plain[len(plain) - len(spec.defaults) :], spec.defaults, strict=False):
        defaults[argument.arg] = run.value(default)
    for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=False):
        if default is not None:
            defaults[argument.arg] = run.value(default)
    closure = Closure(node, here.source, here, defaults, "function" if cls is None else "method", cls)
    made = Described("function", run.code(here.source, node).co_name, meaning=closure)
    made.parts += [
        (Step(Kind.DEFAULT, name, f".{name}"), value) for name, value in defaults.items() if is_tensor(value)
    ]
    if here.function is not None and cls is None:
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        for name in sorted(used & here.names.keys()):
            if type(here.names[name]) is Described and here.names[name].role in ("tensor", "module", "object"):
                made.parts.append((Step(Kind.CELL, name, f".{name}"), here.names[name]))
    if isinstance(node, ast.Lambda):
        return made
    found: Any = made
    for decorator in reversed(node.decorator_list):
        found = _decorated(run, found, closure, decorator)
    return found


def _decorated(run: Run, found: Any, closure: Closure, decorator: ast.expr) -> Any:
    text = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    if text in ("staticmethod", "classmethod", "property"):
        closure.kind = {"staticmethod": "static", "classmethod": "class"}.get(text, "property")
        return found
    if text in _CACHES:
        closure.cache = {}
        closure.kind = "property" if text.endswith("cached_property") else closure.kind
        return found
    if text.endswith(".setter"):
        return MISSING
    value = run.value(decorator)
    if type(value) is Described and value.role == "function" and value is not found:
        wrapped = call(run, value, Given([found], {}, decorator))
        if type(wrapped) is Described and wrapped.role == "function" and closure.kind == "method":
            wrapped.meaning.kind = "method"
            wrapped.meaning.cls = closure.cls
        return found if wrapped is MISSING else wrapped
    return found  # what is not known is taken to leave the function as it is


def bring_in(run: Run, node: ast.Import | ast.ImportFrom) -> None:
    """An import: a file of the program that can be found is read; of the others, the name is kept."""
    here = run.here
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            here.names[alias.asname or name] = imported(run, name)
        return
    base = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name == "*":
            here.names.update(module_names(run, base) or {})
            continue
        names = module_names(run, base)
        if names is not None and alias.name in names:
            value = names[alias.name]
        else:
            value = imported(run, f"{base}.{alias.name}" if base.strip(".") else base + alias.name)
        here.names[alias.asname or alias.name] = value


def imported(run: Run, name: str) -> Described:
    """An imported module, or a name out of one."""
    found = Described("namespace", name)
    found.meaning = module_names(run, name)
    return found


def module_names(run: Run, name: str) -> dict[str, Any] | None:
    """The names of a module of the program, or None where its file is not here."""
    if name.startswith(("torch", "numpy", "typing", "collections", "functools", "os", "math")):
        return None
    key = f"{run.here.source.file}:{name}" if name.startswith(".") else name
    if key in run.modules:
        return run.modules[key]
    if len(run.modules) > 30 or len(run.stack) > _DEEPEST:
        return None
    source = run.find(name)
    if source is None or source.tree is None:
        return None
    run.modules[key] = names = {}
    read_file(run, source, names, name)
    return names


def read_file(run: Run, source: Source, names: dict[str, Any], called: str) -> None:
    """The statements at the top of a file."""
    names["__name__"] = called
    activation = Activation(source, None, run.code(source, None), names, names)
    run.stack.append(activation)
    try:
        if source.tree is not None:
            run.block(source.tree.body)
    except (Return, Jump, Raised):
        pass
    finally:
        run.stack.pop()


# -- calling


def call(run: Run, called: Any, given: Given) -> Any:
    """What a call gives."""
    args, kwargs, node = given
    if len(run.stack) > _DEEPEST:
        return MISSING
    if type(called) is not Described:
        return python.call_unknown(run, given) if called is MISSING else MISSING
    if called.role == "function":
        return call_function(run, called, given)
    if called.role == "class":
        return objects.instantiate(run, called, given)
    if called.role == "namespace":
        if called.name.startswith("builtins."):
            return python.call_builtin(run, called.name.removeprefix("builtins."), given)
        return pytorch.call(run, called.name, given)
    if is_module(called):
        return layers.call(run, called, given)
    if called.role == "object":
        return call_method(run, called, "__call__", given)
    if called.role == "tensor":
        return run.meet(node, [(None, called), *((None, a) for a in (*args, *kwargs.values()))], scalars=False)
    return MISSING


def call_method(run: Run, receiver: Any, name: str, given: Given, otherwise: Any = MISSING) -> Any:
    """What a method gives: the program's own, else what PyTorch or Python do under that name."""
    args, _, node = given
    if type(receiver) is Described:
        if receiver.role == "namespace":
            inner = objects.get_attribute(run, receiver, name, node)
            return call(run, inner, given)
        if receiver.role in ("module", "object", "optimizer", "class"):
            own = objects.find_attribute(receiver, name)
            if own is not MISSING and not (type(own) is Described and own.role == "tensor" and name == "grad"):
                return call(run, objects.bind(own, receiver), given)
        if receiver.role == "module":
            return layers.call_method(run, receiver, name, given)
        if receiver.role == "optimizer":
            return layers.call_optimizer(run, receiver, name, args, node)
        if receiver.role in ("tensor", "array", "generator"):
            return pytorch.call_method(run, receiver, name, given)
        if receiver.role == "function":
            return pytorch.call_function_method(run, receiver, name, given)
        inside = part(receiver, "data") if receiver.cls is not None else MISSING
        if isinstance(inside, dict):
            return python.call_method(run, inside, name, given)  # a UserDict
        found = library.call_object(run, receiver, name, given)
        return otherwise if found is MISSING else found
    if receiver is MISSING or type(receiver) is device:
        return pytorch.call_on_unknown(run, name, given)
    return python.call_method(run, receiver, name, given)


def call_function(run: Run, called: Described, given: Given) -> Any:
    """What a function of the program returns."""
    args, kwargs, _ = given
    closure = called.meaning
    if type(closure) is not Closure:
        return _call_partial(run, called, given)
    key: Any = None
    if closure.cache is not None:
        key = tuple(
            one if type(one) in (int, str, float, bool, Described) else str(one) for one in (*args, *kwargs.values())
        )
        if key in closure.cache:
            return closure.cache[key]
    result = enter(run, closure, given)
    if closure.cache is not None:
        closure.cache[key] = result
    return result


def _call_partial(run: Run, called: Described, given: Given) -> Any:
    args, kwargs, node = given
    inner, bound, named = called.meaning
    return call(run, inner, Given([*bound, *args], {**named, **kwargs}, node))


def enter(run: Run, closure: Closure, given: Given) -> Any:
    """Run a function's body with some arguments."""
    args, kwargs, node = given
    if len(run.stack) > _DEEPEST or sum(one.function is closure.node for one in run.stack) > 6:
        return MISSING
    function = closure.node
    code = run.code(closure.source, function)
    around = closure.around if closure.around.function is not None else None
    activation = Activation(closure.source, function, code, {}, closure.around.globals, around)
    activation.line = activation.last = function.lineno
    activation.call, activation.cls, activation.bound = node, closure.cls, closure.bound
    passed = args if closure.bound is MISSING else [closure.bound, *args]
    activation.names.update(_arguments(closure, passed, kwargs))
    if isinstance(function, ast.Lambda):
        run.stack.append(activation)
        activation.last = function.end_lineno or function.lineno
        try:
            run.arrive()
            return run.value(function.body)
        finally:
            run.stack.pop()
    if _yields(function):
        activation.yielded = []
    run.stack.append(activation)
    try:
        run.block(function.body)
    except Return as returned:
        if activation.yielded is None:
            return returned.value
    except (Enough, Jump):
        pass
    finally:
        run.stack.pop()
    return activation.yielded


def _arguments(closure: Closure, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    spec = closure.node.args
    names: dict[str, Any] = {}
    plain = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    for name in (*plain, *(a.arg for a in spec.kwonlyargs)):
        names[name] = kwargs.get(name, closure.defaults.get(name, MISSING))
    names.update(zip(plain, args, strict=False))
    if spec.vararg is not None:
        names[spec.vararg.arg] = tuple(args[len(plain) :])
    if spec.kwarg is not None:
        names[spec.kwarg.arg] = {key: value for key, value in kwargs.items() if key not in names}
    return names


def _yields(function: ast.AST) -> bool:
    def own(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                yield child
                yield from own(child)

    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own(function))
