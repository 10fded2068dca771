"""What an expression must be, judged from the source alone: a module, a tensor on the CPU, a batch that was moved.

Where no process is left to look into, there is still its text. `Reading` follows a name to its assignment, an argument to
the call that passed it, an attribute to the class that sets it, and describes what comes out (`tree.Described`). It knows
what PyTorch's names do with devices (factories, `.to`, modules, optimizers, loaders), and nothing of what they compute.
What it does not know it says: `MISSING`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from wherry.explain.idioms import FACTORIES, LEGACY, MOVES
from wherry.explain.source import Assignment, Function, Source
from wherry.tree import MISSING, Described, Kind, Step

_LOSS_WEIGHTS = ("weight", "pos_weight")
_FOLLOWS_SELF = ("zeros_like", "ones_like", "rand_like", "randn_like", "full_like", "empty_like")
_NO_TENSOR = ("len", "int", "float", "str", "range", "print", "list", "max", "min", "round", "isinstance")


@dataclass(slots=True)
class Reading:
    """The source of a failure, read as a program that ran on a device.

    Attributes:
        device: The accelerator the error speaks of.
        home: Where the stray is by the error's own words, usually "cpu".
        seen: What is being looked at, so that a name that leads to itself ends.
    """

    device: str
    home: str = "cpu"
    seen: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    _classes: dict[int, Described] = field(default_factory=dict[int, Described])

    def value(self, node: ast.AST | None, scope: Scope) -> Any:
        """What an expression must be."""
        if node is None:
            return MISSING
        key = (id(node), id(scope.function))
        if key in self.seen or len(self.seen) > 400:
            return MISSING
        self.seen.add(key)
        try:
            return self._value(node, scope)
        finally:
            self.seen.discard(key)

    def _value(self, node: ast.AST, scope: Scope) -> Any:
        if isinstance(node, ast.Name):
            return self._name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, ast.Subscript):
            return self._item(node, scope)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.BinOp | ast.Compare):
            parts = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.left, *node.comparators)
            return _together([self.value(part, scope) for part in parts], self.device)
        if isinstance(node, ast.UnaryOp):
            return self.value(node.operand, scope)
        if isinstance(node, ast.Await | ast.NamedExpr | ast.Starred):
            return self.value(node.value, scope)
        if isinstance(node, ast.List | ast.Tuple | ast.ListComp | ast.Dict | ast.DictComp):
            return self._container(node, scope)
        return MISSING

    # -- names

    def _name(self, name: str, scope: Scope) -> Any:
        if name == "self" and scope.owner is not None:
            return self.described(scope.source, scope.owner)
        found = scope.source.of_name(name, scope.function, before=scope.line + 1 if scope.line else None)
        found = [f for f in found if not scope.line or f.node.lineno < scope.line or f.how == "for"]
        if found:
            return self._assigned(found[-1], name, scope)
        if scope.function is not None and name in _arguments(scope.function):
            passed, caller = scope.passed(name)
            return MISSING if passed is None or caller is None else self.value(passed, caller)
        if scope.function is not None:
            outer = scope.source.of_name(name, None)
            if outer:
                return self._assigned(outer[-1], name, Scope(scope.source, None, 0))
        return MISSING

    def _assigned(self, found: Assignment, name: str, scope: Scope) -> Any:
        at = Scope(scope.source, scope.function, found.node.lineno, scope.outer, scope.owner)
        if found.how != "for":
            value = self.value(found.value, at)
            if (
                isinstance(found.node, ast.Assign)
                and _unpacks(found.node)
                and type(value) is Described
                and value.role in ("list", "tuple")
            ):
                return value.parts[0][1] if value.parts else MISSING
            return value
        over = self.value(found.value, at)
        if type(over) is Described and over.role == "tensor":
            return Described("tensor", "Tensor", over.device)
        if type(over) is Described and over.parts:
            return over.parts[0][1]
        if isinstance(found.value, ast.Call | ast.Name | ast.Attribute) and _is_data(scope.source, found.value):
            return Described("tensor", "Tensor", self.home)
        return MISSING

    # -- attributes and classes

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        owner = self.value(node.value, scope)
        if type(owner) is not Described:
            return MISSING
        if owner.role == "tensor":
            return owner if node.attr in ("T", "mT", "data", "grad", "H") else MISSING
        return next((value for step, value in owner.parts if step.key == node.attr), MISSING)

    def described(self, source: Source, cls: ast.ClassDef) -> Described:
        """An object of a class of the file, with the attributes that its methods set."""
        known = self._classes.get(id(cls))
        if known is not None:
            return known
        made = Described("module" if is_module_class(source, cls) else "object", cls.name, definition=(source, cls))
        self._classes[id(cls)] = made
        names: dict[str, Assignment] = {}
        for name in _attributes_set(cls):
            real = [
                a
                for a in source.of_attribute(cls, name)
                if not (isinstance(a.value, ast.Constant) and a.value.value is None)
            ]
            if real:
                names[name] = real[0]
        for name, found in names.items():
            at = Scope(source, found.function, found.node.lineno, None, cls)
            value = self.value(found.value, at)
            if type(value) is not Described:
                continue
            kind = Kind.ATTRIBUTE
            if made.role == "module":
                if found.how == "register_buffer":
                    kind, value = Kind.BUFFER, Described("tensor", "Tensor", self.device)
                elif value.role == "tensor" and value.is_parameter:
                    kind, value = Kind.PARAMETER, Described("tensor", "Parameter", self.device, is_parameter=True)
                elif value.role == "module":
                    kind = Kind.MODULE
            made.parts.append((Step(kind, name, f".{name}"), value))
        return made

    # -- containers

    def _item(self, node: ast.Subscript, scope: Scope) -> Any:
        owner = self.value(node.value, scope)
        if type(owner) is not Described:
            return MISSING
        if owner.role == "tensor":
            return Described("tensor", "Tensor", owner.device)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return next((value for step, value in owner.parts if step.key in (key, None)), MISSING)

    def _container(self, node: ast.expr, scope: Scope) -> Any:
        role = {ast.List: "list", ast.ListComp: "list", ast.Tuple: "tuple"}.get(type(node), "dict")
        made = Described(role, role)
        if isinstance(node, ast.List | ast.Tuple):
            pairs: list[tuple[object, ast.expr]] = list(enumerate(node.elts))
        elif isinstance(node, ast.Dict):
            pairs = [
                (k.value if isinstance(k, ast.Constant) else None, v)
                for k, v in zip(node.keys, node.values, strict=True)
            ]
        elif isinstance(node, ast.ListComp):
            pairs = [(None, node.elt)]
        else:
            pairs = [(None, node.value)] if isinstance(node, ast.DictComp) else []
        for key, part in pairs:
            value = self.value(part, scope)
            if type(value) is Described:
                made.parts.append((Step(Kind.ITEM, key, "[...]" if key is None else f"[{key!r}]"), value))
        return made if made.parts else MISSING

    # -- calls

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        from_torch = isinstance(base, ast.Name) and base.id in ("torch", "th")
        if from_torch and name in FACTORIES | LEGACY:
            return self._factory(node)
        if from_torch and name == "Generator":
            asked = node.args[0] if node.args else _keyword(node, "device")
            return Described("generator", "Generator", "cpu" if asked is None else self.device)
        if name == "Parameter":
            return Described("tensor", "Parameter", self.home, is_parameter=True)
        if base is not None and name in MOVES:
            return self._moved(name, node, base, scope)
        if name in _NO_TENSOR and base is None:
            return MISSING
        if _is_optimizer(node.func):
            return Described("optimizer", name)
        cls = next(iter(scope.source.classes(name)), None)
        if cls is not None and base is None:
            return self.described(scope.source, cls)
        if _is_nn_module(node.func):
            return self._module(name, node, scope)
        if base is None:
            return self._function(node, name, scope)
        owner = self.value(base, scope)
        if type(owner) is Described and owner.role == "tensor":
            return Described("tensor", "Tensor", owner.device)
        if (
            type(owner) is Described
            and owner.role == "module"
            and name in ("train", "eval", "requires_grad_", "double", "half", "float")
        ):
            return owner
        if from_torch or (isinstance(base, ast.Name) and base.id == "F"):
            return _together([self.value(argument, scope) for argument in node.args], self.device)
        return self._called(node.func, scope)

    def _called(self, func: ast.expr, scope: Scope) -> Any:
        called = self.value(func, scope)
        if type(called) is Described and called.role == "module":
            return Described("tensor", "Tensor", self.device)
        return MISSING

    def _factory(self, node: ast.Call) -> Described:
        asked = _keyword(node, "device")
        if asked is None or (isinstance(asked, ast.Constant) and asked.value in (None, "cpu")):
            return Described("tensor", "Tensor", "cpu")
        return Described("tensor", "Tensor", self.device)

    def _moved(self, name: str, node: ast.Call, base: ast.expr, scope: Scope) -> Any:
        owner = self.value(base, scope)
        asked = node.args[0] if node.args else _keyword(node, "device")
        away = name == "cpu" or (isinstance(asked, ast.Constant) and asked.value == "cpu")
        if type(owner) is Described and owner.role != "tensor":
            return owner
        if (
            name == "to"
            and isinstance(asked, ast.Attribute)
            and asked.attr.startswith(("float", "int", "bfloat", "half", "long"))
        ):
            return owner  # a cast
        return Described("tensor", "Tensor", "cpu" if away else self.device)

    def _module(self, name: str, node: ast.Call, scope: Scope) -> Described:
        made = Described("module", name)
        if name.endswith("Loss"):
            for keyword in node.keywords:
                if keyword.arg in _LOSS_WEIGHTS:
                    value = self.value(keyword.value, scope)
                    device = value.device if type(value) is Described and value.device is not None else self.home
                    made.parts.append(
                        (Step(Kind.BUFFER, keyword.arg, f".{keyword.arg}"), Described("tensor", "Tensor", device))
                    )
            return made
        if name in ("Sequential", "ModuleList", "ModuleDict"):
            inner = node.args
            for position, argument in enumerate(inner):
                value = self.value(argument, scope)
                if type(value) is Described and value.role in ("list", "dict"):
                    made.parts += value.parts
                elif type(value) is Described:
                    made.parts.append((Step(Kind.MODULE, str(position), f"[{position}]"), value))
            return made
        made.parts.append(
            (Step(Kind.PARAMETER, "weight", ".weight"), Described("tensor", "Parameter", None, is_parameter=True))
        )
        return made

    def _function(self, node: ast.Call, name: str, scope: Scope) -> Any:
        """What a function of the file returns."""
        if scope.source.tree is None:
            return MISSING
        for function in scope.source.tree.body:
            if isinstance(function, ast.FunctionDef) and function.name == name:
                returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
                if len(returns) == 1:
                    inside = Scope(scope.source, function, returns[0].lineno, (node, scope))
                    return self.value(returns[0], inside)
                return MISSING
        return self._called(node.func, scope)


@dataclass(slots=True)
class Scope:
    """Where an expression stands: the names it sees.

    Attributes:
        source, function: The file, and the function or None.
        line: Where in it; assignments below do not count. 0 for the end.
        outer: The call of the function and the scope of that call, or None.
        owner: The class whose method it is, or None.
    """

    source: Source
    function: Function | None
    line: int
    outer: tuple[ast.Call, Scope] | None = None
    owner: ast.ClassDef | None = None

    def passed(self, name: str) -> tuple[ast.expr | None, Scope | None]:
        """What the caller passes for an argument, and the scope that stands in."""
        if self.outer is None or self.function is None:
            return None, None
        call, scope = self.outer
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value, scope
        names = _arguments(self.function)
        position = names.index(name) - (1 if names[:1] == ["self"] else 0)
        return (call.args[position], scope) if 0 <= position < len(call.args) else (None, None)


def _arguments(function: Function) -> list[str]:
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def _together(values: list[Any], device: str) -> Any:
    """Operands of one computation: on the device if any is, else where the first is."""
    tensors = [v for v in values if type(v) is Described and v.role == "tensor"]
    if not tensors:
        return MISSING
    where = device if any(v.device == device for v in tensors) else tensors[0].device
    return Described("tensor", "Tensor", where)


def _unpacks(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Tuple | ast.List) for target in node.targets)


def _is_data(source: Source, node: ast.expr) -> bool:
    """Whether a loop runs over what hands out batches, by the name it goes by."""
    text = source.text(node).lower()
    return any(word in text for word in ("loader", "dataset", "batch", "data", "dl", "iter"))


def _is_optimizer(func: ast.expr) -> bool:
    text = ast.unparse(func)
    return text.startswith(("torch.optim.", "optim."))


def _is_nn_module(func: ast.expr) -> bool:
    text = ast.unparse(func)
    return text.startswith(("nn.", "torch.nn.")) and text.rpartition(".")[2][:1].isupper() and "functional" not in text


def is_module_class(source: Source, cls: ast.ClassDef, depth: int = 5) -> bool:
    """Whether a class derives from `nn.Module`, as far as its file tells."""
    for base in cls.bases:
        text = ast.unparse(base)
        if text.rpartition(".")[2] in ("Module", "LightningModule", "PreTrainedModel", "Sequential"):
            return True
        if depth and any(
            is_module_class(source, other, depth - 1) for other in source.classes(text) if other is not cls
        ):
            return True
    return False


def _attributes_set(cls: ast.ClassDef) -> Iterator[str]:
    """The names of the attributes that the methods of a class set or register, each once."""
    seen: set[str] = set()
    for node in ast.walk(cls):
        name: object = None
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            name = node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("register_buffer", "register_parameter", "add_module")
        ):
            name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if isinstance(name, str) and name not in seen:
            seen.add(name)
            yield name
