"""The values of a program that is read instead of run.

What Python itself can know is itself: numbers, text, tuples, lists, dictionaries. All else is a `tree.Described`: tensors,
modules, functions, classes, imported modules. What is not known is `MISSING`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from wherry import tree
from wherry.callsite import Callsite
from wherry.explain.source import Function, Source
from wherry.tree import Described, Kind, Step

MISSING: Any = tree.MISSING


@dataclass(frozen=True, slots=True)
class device:  # noqa: N801 - spelled like torch's, for which the look-ups of live frames take it
    """A `torch.device`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False, slots=True)
class Code:
    """A function's code, as far as the text gives it; one for each function."""

    co_name: str
    co_filename: str
    co_varnames: tuple[str, ...] = ()
    co_argcount: int = 0
    co_kwonlyargcount: int = 0
    co_freevars: tuple[str, ...] = ()
    co_firstlineno: int = 1


@dataclass(frozen=True, slots=True)
class Made:
    """Where something was made: the line, the code it stands in, the expression."""

    site: Callsite
    code: Code
    node: ast.AST


@dataclass(eq=False, slots=True)
class Closure:
    """What a function of the program keeps.

    Attributes:
        node, source: Its text.
        around: The activation it was defined in.
        defaults: The values of its defaults, by argument.
        kind: "function", "method", "static", "class", "property".
        cls: The class in whose body it stands, or None.
        bound: What `self` is, or `MISSING`.
        cache: What it answered before, where it is cached; else None.
    """

    node: Function
    source: Source
    around: Activation
    defaults: dict[str, Any]
    kind: str = "function"
    cls: Described | None = None
    bound: Any = MISSING
    cache: dict[Any, Any] | None = None


@dataclass(eq=False, slots=True)
class Activation:
    """A function that is running, or the top of a file.

    Attributes:
        source, function: Its text.
        code: Its code.
        names: Its locals.
        globals: The names at the top of its file.
        around: The activation of the function around it, or None.
        line, last: The lines of the statement that runs.
        call: The expression in the caller that led here.
        cls, bound: Of a method: the class in whose body it stands, and its `self`.
        declared: Names that it declares global or nonlocal.
        yielded: What it yielded so far, where it is a generator.
    """

    source: Source
    function: Function | None
    code: Code
    names: dict[str, Any]
    globals: dict[str, Any]
    around: Activation | None = None
    line: int = 0
    last: int = 0
    call: ast.AST | None = None
    cls: Described | None = None
    bound: Any = MISSING
    declared: dict[str, str] = field(default_factory=dict[str, str])
    yielded: list[Any] | None = None


class Defaulting(dict[Any, Any]):
    """A `defaultdict`, of which the text says what it makes."""

    factory: Any = None


ROUNDS = 4
"""How often a loop runs."""


class Attributes(dict[str, Any]):
    """`vars(obj)`: what is put there is an attribute of the object."""

    owner: Any = None


DATA = "data"
"""The meaning of a tensor that may as well be a batch: a dictionary or a tuple of tensors, as a loader hands it out."""


class Given(NamedTuple):
    """What a call is given, and the expression that it is."""

    args: list[Any]
    kwargs: dict[str, Any]
    node: ast.AST


def is_tensor(value: Any) -> TypeGuard[Described]:
    return type(value) is Described and value.role == "tensor"


def is_module(value: Any) -> TypeGuard[Described]:
    return type(value) is Described and value.role == "module"


def part(obj: Described, key: object) -> Any:
    """A part by its name or key, or `MISSING`."""
    return next((value for step, value in obj.parts if step.key == key and type(step.key) is type(key)), MISSING)


def put(obj: Described, kind: Kind, key: object, value: Any) -> None:
    """Set a part, in the place of the one of that name where there is one."""
    if kind is Kind.ITEM or (obj.name in CONTAINERS and kind in (Kind.MODULE, Kind.PARAMETER)):
        text = "[...]" if key is None else f"[{key}]" if str(key).isdigit() else f"[{key!r}]"
    else:
        text = f".{key}"
    new = (Step(kind, key, text), value)
    for position, (step, _) in enumerate(obj.parts):
        if step.key == key and type(step.key) is type(key):
            obj.parts[position] = new
            return
    obj.parts.append(new)


CONTAINERS = ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")


def flat(values: Any, depth: int = 3) -> list[Any]:
    """The values in lists and tuples in lists and tuples."""
    found: list[Any] = []
    for value in values:
        if type(value) in (list, tuple) and depth:
            found += flat(value[:50], depth - 1)
        else:
            found.append(value)
    return found


def mro(cls: Described) -> list[Described]:
    """The classes of the program that a class derives from, itself first."""
    found = [cls]
    for base in cls.meaning.bases:
        if type(base) is Described and base.role == "class":
            found += [one for one in mro(base) if one not in found]
    return found


@dataclass(eq=False, slots=True)
class ClassText:
    """What a class of the program keeps: its bases, as far as they are known, and what a dataclass or a tuple lists."""

    node: ast.ClassDef | None
    source: Source | None
    bases: list[Any]
    fields: list[tuple[str, Any]] | None = None


def foreign_bases(cls: Described) -> list[str]:
    """The dotted names of the classes of others that a class derives from."""
    return [
        base.name
        for one in mro(cls)
        for base in one.meaning.bases
        if type(base) is Described and base.role == "namespace"
    ]
