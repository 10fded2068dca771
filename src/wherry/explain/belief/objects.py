"""Classes of the program and their objects: attributes, methods, what `super()` leads to."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from wherry.explain.belief import functions, layers, python, pytorch
from wherry.explain.belief.values import (
    MISSING,
    Activation,
    Attributes,
    ClassText,
    Closure,
    Defaulting,
    Given,
    foreign_bases,
    is_module,
    is_tensor,
    mro,
    part,
    put,
)
from wherry.tree import Described, Kind, Step

if TYPE_CHECKING:
    from wherry.explain.belief.program import Run

_MODULES = ("Module", "LightningModule", "PreTrainedModel", "ModelMixin")


def define_class(run: Run, node: ast.ClassDef) -> Described:
    """The value of a `class`."""
    here = run.here
    bases = [run.value(base) for base in node.bases]
    text = ClassText(node, here.source, bases)
    made = Described("class", node.name, meaning=text)
    made.cls = next((base for base in bases if type(base) is Described and base.role == "class"), None)
    inside = Activation(here.source, here.function, here.code, {}, here.globals, here.around)
    inside.line = inside.last = node.lineno
    # What its body assigns sees what is around it; its methods do not see what it assigns.
    body = {**here.names}
    before = here.names
    here.names = body
    try:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                here.names = before
                value = functions.define(run, statement, made)
                here.names = body
                body[statement.name] = value
                made.parts.append((Step(Kind.ATTRIBUTE, statement.name, f".{statement.name}"), value))
            else:
                run.statement(statement)
                for name in _assigned(statement):
                    if name in body:
                        put(made, Kind.ATTRIBUTE, name, body[name])
    finally:
        here.names = before
    if _lists_fields(node, made):
        fields = [n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        inherited = [f for base in mro(made)[1:] for f in base.meaning.fields or []]
        text.fields = [
            *inherited,
            *((name, body.get(name, MISSING) if _sets(node, name) else MISSING) for name in fields),
        ]
    return made


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _lists_fields(node: ast.ClassDef, made: Described) -> bool:
    decorated = any("dataclass" in ast.unparse(one) or "define" in ast.unparse(one) for one in node.decorator_list)
    return decorated or any(name.rpartition(".")[2] in ("NamedTuple", "BaseModel") for name in foreign_bases(made))


def _sets(node: ast.ClassDef, name: str) -> bool:
    return any(
        isinstance(n, ast.AnnAssign) and n.value is not None and getattr(n.target, "id", "") == name for n in node.body
    )


def role_of(cls: Described) -> str:
    """What the objects of a class are."""
    for name in foreign_bases(cls):
        last = name.rpartition(".")[2]
        if last in _MODULES or (name.startswith("torch.nn.") and last[:1].isupper() and "Parameter" not in last):
            return "module"
        if last == "Optimizer" or name.startswith("torch.optim."):
            return "optimizer"
    known = any(type(base) is not Described for one in mro(cls) for base in one.meaning.bases)
    return "module" if known and find_in_class(cls, "forward") is not MISSING else "object"


def instantiate(run: Run, cls: Described, given: Given) -> Any:
    """An object of a class of the program."""
    args, kwargs, node = given
    definition = tuple((one.meaning.source, one.meaning.node) for one in mro(cls) if one.meaning.node is not None)
    made = Described(role_of(cls), cls.name, definition=definition, cls=cls, made=run.made(node))
    if cls.meaning.node is not None:
        run.instances[cls.meaning.node] = made
    if made.role == "optimizer":
        put(made, Kind.ATTRIBUTE, "state", layers.empty_state())
        put(made, Kind.ATTRIBUTE, "param_groups", [])
    init = find_in_class(cls, "__init__")
    if init is not MISSING:
        functions.call(run, bind(init, made), given)
        return made
    fields = cls.meaning.fields
    if fields is not None:
        for position, (name, default) in enumerate(fields):
            value = args[position] if position < len(args) else kwargs.get(name, default)
            value = _field_default(run, value, node)
            put(made, Kind.ATTRIBUTE, name, value)
        after = find_in_class(cls, "__post_init__")
        if after is not MISSING:
            functions.call(run, bind(after, made), Given([], {}, node))
        return made
    foreign_init(run, made, given)
    return made


def _field_default(run: Run, value: Any, node: ast.AST) -> Any:
    if type(value) is tuple and len(value) == 2 and value[0] == "field factory":
        return functions.call(run, value[1], Given([], {}, node))
    return value


def foreign_init(run: Run, obj: Described, given: Given) -> None:
    """What the constructor of a class of others sets up, of which an object's class derives."""
    args, kwargs, _ = given
    assert obj.cls is not None
    if obj.role == "optimizer":
        layers.set_groups(obj, args[0] if args else kwargs.get("params", MISSING))
        return
    for name in foreign_bases(obj.cls):
        last = name.rpartition(".")[2]
        if last in ("UserDict", "dict", "OrderedDict", "defaultdict"):
            begin: dict[Any, Any] = args[0] if args and isinstance(args[0], dict) else {}
            put(obj, Kind.ATTRIBUTE, "data", {**begin, **kwargs})
        if obj.role == "module" and last not in _MODULES:
            layers.build(run, obj, last, given)


def is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def call_super(run: Run, name: str, given: Given) -> Any:
    """`super().name(...)`: the next class that has it, else what PyTorch does under that name."""
    args, _, node = given
    here = run.here
    obj = here.bound
    if type(obj) is not Described or here.cls is None:
        return MISSING
    order = mro(obj.cls if obj.cls is not None and obj.role != "class" else obj)
    after = order[order.index(here.cls) + 1 :] if here.cls in order else []
    for cls in after:
        own = part(cls, name)
        if own is not MISSING:
            return functions.call(run, bind(own, obj), given)
    if name == "__init__":
        foreign_init(run, obj, given)
        return None
    if name in ("__setattr__", "__getattr__") and args:
        if name == "__setattr__" and type(args[0]) is str:
            set_plain(obj, args[0], args[1] if len(args) > 1 else MISSING)
        return MISSING
    if is_module(obj):
        return layers.call_method(run, obj, name, given)
    if obj.role == "optimizer":
        return layers.call_optimizer(run, obj, name, args, node)
    return MISSING


# -- attributes


def find_in_class(cls: Described, name: str) -> Any:
    for one in mro(cls):
        found = part(one, name)
        if found is not MISSING:
            return found
    return MISSING


def find_attribute(obj: Described, name: str) -> Any:
    """What an object, or its class, binds to a name."""
    found = part(obj, name)
    if found is MISSING and obj.role == "class":
        return find_in_class(obj, name)
    if found is MISSING and obj.cls is not None:
        return find_in_class(obj.cls, name)
    return found


def bind(found: Any, obj: Described) -> Any:
    """A function of a class as the method of an object."""
    if type(found) is not Described or found.role != "function" or type(found.meaning) is not Closure:
        return found
    own = found.meaning
    if own.cls is None or own.kind in ("static", "function") or own.bound is not MISSING:
        return found
    if obj.role == "class" and own.kind != "class":
        return found
    bound = obj.cls if own.kind == "class" and obj.cls is not None and obj.role != "class" else obj
    closure = Closure(own.node, own.source, own.around, own.defaults, own.kind, own.cls, bound, own.cache)
    return Described("function", found.name, parts=found.parts, meaning=closure)


def get_attribute(run: Run, obj: Any, name: str, node: ast.AST) -> Any:
    """`obj.name`."""
    if type(obj) is not Described:
        return python.get_attribute(obj, name)
    if obj.role == "namespace":
        if obj.meaning is not None:
            found = obj.meaning.get(name, MISSING)
            return functions.imported(run, f"{obj.name}.{name}") if found is MISSING else found
        return pytorch.name_of(run, f"{obj.name}.{name}")
    if obj.role in ("tensor", "array", "generator"):
        return pytorch.get_attribute(run, obj, name, node)
    found = find_attribute(obj, name)
    if found is not MISSING:
        own = found.meaning if type(found) is Described and found.role == "function" else None
        if type(own) is Closure and own.kind == "property" and part(obj, name) is MISSING:
            value = functions.call(run, bind(found, obj), Given([], {}, node))
            if own.cache is not None:
                own.cache.clear()  # of each object its own
                put(obj, Kind.ATTRIBUTE, name, value)
            return value
        return bind(found, obj) if part(obj, name) is MISSING else found
    if obj.role == "module":
        return layers.get_attribute(run, obj, name, node)
    if name == "__dict__":
        return attributes(obj)
    if name == "__class__" and obj.cls is not None:
        return obj.cls
    getter = find_attribute(obj, "__getattr__")
    if getter is not MISSING and obj.role == "object":
        return functions.call(run, bind(getter, obj), Given([name], {}, node))
    return MISSING


def set_attribute(run: Run, obj: Any, name: str, value: Any, node: ast.AST) -> None:
    """`obj.name = value`."""
    if type(obj) is not Described or obj.role == "namespace":
        return
    if is_tensor(obj):
        if name == "data" and is_tensor(value):
            obj.device, obj.storage, obj.made = value.device, value.storage, value.made
        elif name == "grad":
            if is_tensor(value) and None not in (value.device, obj.device) and value.device != obj.device:
                run.conflict(node, [("grad", value)])
            put(obj, Kind.GRAD, name, value)
        return
    own = find_attribute(obj, "__setattr__")
    if own is not MISSING and type(own) is Described and own.role == "function":
        functions.call(run, bind(own, obj), Given([name, value], {}, node))
        return
    set_plain(obj, name, value)


def attributes(obj: Described) -> Attributes:
    """`vars(obj)`."""
    found = Attributes({str(step.key): value for step, value in obj.parts if step.kind is not Kind.ITEM})
    found.owner = obj
    return found


def set_plain(obj: Described, name: str, value: Any) -> None:
    """Set an attribute as a module does, which registers what it knows, or as any object does."""
    kind = Kind.ATTRIBUTE
    if is_module(obj):
        have = next((step.kind for step, _ in obj.parts if step.key == name), None)
        if is_module(value):
            kind = Kind.MODULE
        elif is_tensor(value) and value.is_parameter:
            kind = Kind.PARAMETER
        elif have is Kind.BUFFER and (is_tensor(value) or value is None):
            kind = Kind.BUFFER
    put(obj, kind, name, value)


def defaulting(factory: Any) -> Defaulting:
    """A `defaultdict`."""
    made = Defaulting()
    made.factory = factory
    return made
