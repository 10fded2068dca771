"""Python's own: containers and their methods, loops, builtin functions, and calls of what is not known."""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from wherry.explain.belief import functions, layers, objects, pytorch
from wherry.explain.belief.values import (
    DATA,
    MISSING,
    Attributes,
    Defaulting,
    Given,
    device,
    flat,
    is_module,
    is_tensor,
    part,
    put,
)
from wherry.tree import Described, Kind

if TYPE_CHECKING:
    from wherry.explain.belief.program import Run

_PURE = {
    name: getattr(builtins, name)
    for name in "int float str bool abs min max round len sorted ord chr repr bytes divmod hash".split()
}
_DICTS = (dict, Defaulting, Attributes)


@functools.cache
def builtin(name: str) -> Any:
    """A name that Python itself binds."""
    return Described("namespace", f"builtins.{name}") if hasattr(builtins, name) else MISSING


# -- items


def get_item(run: Run, obj: Any, key: Any, node: ast.AST) -> Any:
    """`obj[key]`."""
    if type(obj) in _DICTS:
        return _of_dict(run, obj, key, node)
    if type(obj) in (list, tuple, str):
        if type(key) in (int, slice):
            try:
                return obj[key]
            except IndexError:
                return obj[-1] if obj and type(obj) is list else MISSING
        return obj[0] if obj and type(obj) is not str else MISSING
    if type(obj) is not Described:
        return MISSING
    if obj.role == "tensor":
        return pytorch.get_item(run, obj, key, node)
    if obj.role == "array":
        return pytorch.array(run, node, [obj])
    if obj.role == "module":
        return layers.get_item(run, obj, key, node)
    own = objects.find_attribute(obj, "__getitem__")
    if own is not MISSING:
        return functions.call(run, objects.bind(own, obj), Given([key], {}, node))
    if type(part(obj, "data")) in _DICTS and obj.cls is not None:
        return _of_dict(run, part(obj, "data"), key, node)  # a UserDict
    if obj.cls is not None and obj.cls.meaning.fields and type(key) is int:
        names = [name for name, _ in obj.cls.meaning.fields]
        return part(obj, names[key]) if -len(names) <= key < len(names) else MISSING
    return part(obj, key) if type(key) in (str, int) else MISSING


def _of_dict(run: Run, obj: dict[Any, Any], key: Any, node: ast.AST) -> Any:
    known = key is not MISSING and not isinstance(key, list | dict | slice)
    if known and key in obj:
        return obj[key]
    if known and isinstance(obj, Defaulting) and obj.factory is not None:
        obj[key] = functions.call(run, obj.factory, Given([], {}, node))
        return obj[key]
    if MISSING in obj:
        return obj[MISSING]
    return next(iter(obj.values()), MISSING)


def set_item(run: Run, obj: Any, key: Any, value: Any, node: ast.AST) -> None:
    """`obj[key] = value`."""
    if type(obj) is Attributes and type(key) is str:
        objects.set_plain(obj.owner, key, value)
    if type(obj) in _DICTS:
        obj[MISSING if isinstance(key, list | dict | slice) else key] = value
    elif type(obj) is list:
        if type(key) is int and -len(obj) <= key < len(obj):
            obj[key] = value
        elif key is MISSING and obj:
            obj[0] = value
    elif type(obj) is Described and obj.role == "tensor":
        if obj.meaning == DATA and not isinstance(key, slice):
            put(obj, Kind.ITEM, key if type(key) in (str, int) else None, value)
            return
        if is_tensor(value) and value.dim == 0:
            return
        run.meet(node, [("self", obj), ("value", value)])
    elif type(obj) is Described and obj.role == "module":
        if is_module(value) and type(key) in (str, int):
            put(obj, Kind.MODULE, str(key), value)
    elif type(obj) is Described:
        own = objects.find_attribute(obj, "__setitem__")
        if own is not MISSING:
            functions.call(run, objects.bind(own, obj), Given([key, value], {}, node))


def iterate(run: Run, over: Any, node: ast.AST, *, most: int, least: int = 2) -> Iterator[Any]:
    """The first items of what a loop runs over, or of what is unpacked."""
    if type(over) in (list, tuple, set, str, range, *_DICTS):
        for number, item in enumerate(list(islice(iter(over), most))):
            run.tick()
            del number
            yield item
        return
    if type(over) is not Described:
        yield from [MISSING] * least
        return
    if over.role == "tensor":
        if over.meaning == DATA:
            for number in range(least):
                yield _data_part(run, over, number, node)
            return
        yield from (run.view(over, dim=over.dim) for _ in range(least))
    elif over.role == "module":
        yield from layers.items(over)[:most]
    elif over.role == "object" and over.name in ("DataLoader", "TensorDataset"):
        yield from _batches(run, over, node, min(most, 3))
    elif over.role == "object":
        yield from _of_object(run, over, node, most)
    else:
        yield from [MISSING] * least


def is_longer(over: Any, most: int) -> bool:
    """Whether a loop runs over more than is gone through here, as far as that is known."""
    return len(over) > most if isinstance(over, list | tuple | set | dict | range | str) else not is_module(over)


def _data_part(run: Run, over: Described, key: Any, node: ast.AST) -> Any:
    found = part(over, key)
    if found is not MISSING:
        return found
    whole = part(over, None)
    if whole is not MISSING:
        return whole
    made = run.tensor(over.device, node)
    made.meaning, made.made = DATA, over.made
    if type(key) in (str, int):
        put(over, Kind.ITEM, key, made)
    return made


def _of_object(run: Run, over: Described, node: ast.AST, most: int) -> Iterator[Any]:
    if over.cls is not None and over.cls.meaning.fields and "__iter__" not in [s.key for s, _ in over.cls.parts]:
        yield from (value for step, value in over.parts if step.kind is Kind.ATTRIBUTE)
        return
    iterator = objects.find_attribute(over, "__iter__")
    if iterator is not MISSING:
        result = functions.call(run, objects.bind(iterator, over), Given([], {}, node))
        if result is not over:
            yield from iterate(run, result, node, most=most)
            return
        for _ in range(2):
            yield functions.call_method(run, over, "__next__", Given([], {}, node))
        return
    getter = objects.find_attribute(over, "__getitem__")
    if getter is not MISSING:
        for number in range(2):
            yield functions.call(run, objects.bind(getter, over), Given([number], {}, node))


def _batches(run: Run, loader: Described, node: ast.AST, most: int) -> Iterator[Any]:
    """What a loader hands out: examples of its data set, collated to new tensors on the CPU."""
    if loader.name == "TensorDataset":
        yield tuple(run.view(value) for value in loader.meaning["tensors"] if is_tensor(value))
        return
    dataset, collate = loader.meaning["dataset"], loader.meaning["collate"]
    for number in range(most):
        if type(dataset) is Described and dataset.name == "TensorDataset":
            item: Any = tuple(run.view(value) for value in dataset.meaning["tensors"] if is_tensor(value))
        elif type(dataset) is Described and dataset.role == "object":
            item = get_item(run, dataset, number, node)
            if item is MISSING:
                item = next(iterate(run, dataset, node, most=1), MISSING)
        else:
            item = get_item(run, dataset, number, node) if type(dataset) in (list, tuple) else MISSING
        if collate is not MISSING and collate is not None:
            yield functions.call(run, collate, Given([[item, item]], {}, node))
        else:
            yield _collated(run, item, node)


def _collated(run: Run, item: Any, node: ast.AST) -> Any:
    if isinstance(item, list | tuple):
        return [_collated(run, one, node) for one in item]
    if isinstance(item, dict):
        return {key: _collated(run, one, node) for key, one in item.items()}
    if is_tensor(item) or (type(item) is Described and item.role == "array"):
        return run.tensor(item.device or "cpu", node, dtype=item.dtype)
    if type(item) in (int, float):
        return run.tensor("cpu", node, dtype="float64" if type(item) is float else None)
    if item is MISSING:
        made = run.tensor("cpu", node)
        made.meaning = DATA
        return made
    return item


# -- attributes and methods of Python's own types


def get_attribute(obj: Any, name: str) -> Any:
    """`obj.name` of what Python itself is."""
    if type(obj) is device:
        kind, _, index = obj.name.partition(":")
        return {"type": kind, "index": int(index) if index else None}.get(name, MISSING)
    return MISSING


def call_method(run: Run, obj: Any, name: str, given: Given) -> Any:
    """A method of a string, a list, a dictionary."""
    args, _, node = given
    first = args[0] if args else MISSING
    if type(obj) in _DICTS:
        return _method_of_dict(run, obj, name, given)
    if type(obj) is list:
        if run.short and name in ("append", "extend", "insert", "appendleft"):
            run.grown[id(obj)] = obj
        if name in ("append", "add", "appendleft"):
            obj.append(first)
        elif name in ("extend", "insert"):
            obj.extend(iterate(run, first, node, most=16) if name == "extend" else [args[-1]])
        elif name in ("pop", "popleft") and obj:
            return obj.pop(0 if name == "popleft" or first == 0 else -1)
        elif name == "copy":
            return list(obj)
        elif name == "clear":
            obj.clear()
        return None
    if type(obj) in (str, int, float, bytes, tuple, range):
        method = getattr(obj, name, None)
        plain = all(type(one) in (str, int, float, bytes, tuple) for one in args)
        return (
            method(*args)
            if method is not None and plain and name not in ("format", "ljust", "rjust", "zfill")
            else MISSING
        )
    if type(obj) is set and name == "add":
        return None
    return MISSING


def _method_of_dict(run: Run, obj: dict[Any, Any], name: str, given: Given) -> Any:
    args, kwargs, node = given
    first = args[0] if args else MISSING
    if name == "items":
        return list(obj.items())
    if name in ("keys", "values"):
        return list(obj.keys() if name == "keys" else obj.values())
    if name in ("get", "pop"):
        default = args[1] if len(args) > 1 else None
        if first is not MISSING and not isinstance(first, list | dict) and first in obj:
            return obj[first]  # what is popped stays: a loop runs fewer times here than it did
        return _of_dict(run, obj, first, node) if MISSING in obj or (first is MISSING and obj) else default
    if name == "setdefault":
        if first not in obj:
            obj[first] = args[1] if len(args) > 1 else None
        return obj[first]
    if name == "update":
        new = {**(first if isinstance(first, dict) else {}), **kwargs}
        obj.update(new)
        if isinstance(obj, Attributes):
            for key, value in new.items():
                objects.set_plain(obj.owner, key, value)
    if name == "copy":
        return dict(obj)
    if name == "clear":
        obj.clear()
    return None if name in ("update", "clear") else MISSING


# -- builtin functions


def call_builtin(run: Run, name: str, given: Given) -> Any:
    """A call of a function that Python itself binds."""
    args, kwargs, node = given
    first = args[0] if args else MISSING
    if name in ("print", "open", "input", "format", "exec", "eval"):
        return MISSING
    if name == "len":
        if type(first) is Described and first.role == "module":
            return len(layers.items(first))
        if type(first) is Described and first.role == "object":
            own = objects.find_attribute(first, "__len__")
            return MISSING if own is MISSING else functions.call(run, objects.bind(own, first), Given([], {}, node))
        if id(first) in run.grown or not isinstance(first, list | tuple | dict | str | set | range):
            return MISSING
        return len(first)
    if name == "range":
        if not args or not all(type(one) is int for one in args):
            return [0, 1] if len(args) == 1 else [MISSING, MISSING]
        return range(*args)
    if name in ("list", "tuple", "set", "sorted", "reversed", "iter", "frozenset"):
        if not args:
            return () if name == "tuple" else set() if name == "set" else []
        if name == "iter" and type(first) is not list:
            return first
        items = list(iterate(run, first, node, most=16))
        return items[::-1] if name == "reversed" else tuple(items) if name == "tuple" else items
    if name == "dict":
        made: dict[Any, Any] = dict(first) if isinstance(first, dict) else {}
        if type(first) in (list, tuple):
            made.update(pair for pair in first if type(pair) in (list, tuple) and len(pair) == 2)
        return {**made, **kwargs}
    if name == "enumerate":
        start = kwargs.get("start", args[1] if len(args) > 1 else 0)
        items = list(iterate(run, first, node, most=8))
        return [(number + start if type(start) is int else MISSING, item) for number, item in enumerate(items)]
    if name == "zip":
        columns = [list(iterate(run, one, node, most=8)) for one in args]
        return [tuple(row) for row in zip(*columns, strict=False)]
    if name in ("map", "filter"):
        columns = [list(iterate(run, one, node, most=8)) for one in args[1:]]
        if name == "filter":
            return columns[0] if columns else []
        return [functions.call(run, first, Given(list(row), {}, node)) for row in zip(*columns, strict=False)]
    if name == "next":
        return next(iterate(run, first, node, most=1), MISSING)
    if name == "sum":
        return _sum(run, first, node)
    return _about_objects(run, name, args, node)


def _sum(run: Run, first: Any, node: ast.AST) -> Any:
    if is_tensor(first):
        return run.meet(node, [("self", first)])
    values = list(iterate(run, first, node, most=16))
    tensors = [(None, value) for value in values if is_tensor(value)]
    if tensors:
        return run.meet(node, tensors)
    return sum(values) if all(type(value) in (int, float) for value in values) else MISSING


def _about_objects(run: Run, name: str, args: list[Any], node: ast.AST) -> Any:
    first = args[0] if args else MISSING
    if name in ("getattr", "hasattr") and len(args) > 1:
        found = objects.get_attribute(run, first, args[1], node) if type(args[1]) is str else MISSING
        if name == "hasattr":
            return MISSING if found is MISSING and (first is MISSING or is_tensor(first)) else found is not MISSING
        return args[2] if found is MISSING and len(args) > 2 and first is not MISSING else found
    if name == "setattr" and len(args) > 2 and type(args[1]) is str:
        objects.set_attribute(run, first, args[1], args[2], node)
        return None
    if name == "isinstance" and len(args) > 1:
        return is_instance(first, args[1])
    if name == "vars" and type(first) is Described:
        return objects.attributes(first)
    if name == "type":
        return first.cls if type(first) is Described and first.cls is not None else MISSING
    if name == "callable":
        return True if type(first) is Described and first.role in ("function", "class", "module") else MISSING
    if name == "super":
        return MISSING
    if name in _PURE and args and all(type(one) in (int, float, str, bool) for one in flat(args)):
        return _PURE[name](*args)
    if name in ("max", "min", "abs", "round"):
        return run.meet(node, [(None, one) for one in args])
    return MISSING


def is_instance(value: Any, of: Any) -> bool | Any:
    """`isinstance`, as far as it is known."""
    if type(of) is tuple:
        known = [is_instance(value, one) for one in of]
        return True if True in known else MISSING if MISSING in known else False
    if type(of) is not Described or value is MISSING:
        return MISSING
    if of.role == "class":
        if type(value) is not Described:
            return False
        if value.role in ("object", "module", "optimizer"):
            from wherry.explain.belief.values import mro

            return value.cls is not None and of in mro(value.cls)
        return False if value.role != "tensor" or value.meaning != DATA else MISSING
    name = of.name.rpartition(".")[2]
    if name in ("Tensor", "FloatTensor"):
        return is_tensor(value)
    if name == "Parameter":
        return is_tensor(value) and value.is_parameter
    if name == "Module":
        return is_module(value)
    if name in ("list", "tuple", "dict", "str", "int", "float", "bool", "set", "Mapping", "Sequence"):
        names = {"Mapping": ("dict", "Defaulting"), "Sequence": ("list", "tuple"), "dict": ("dict", "Defaulting")}
        return type(value).__name__ in names.get(name, (name,))
    if is_module(value) and value.cls is None:
        return value.name == name or MISSING if name[:1].isupper() and name.startswith("_") else value.name == name
    return False if is_tensor(value) and value.meaning != DATA else MISSING


def call_unknown(run: Run, given: Given) -> Any:
    """A call of what is not known: a function that it was given is likely what it hands on, and what it computes from
    tensors on the device is on the device.
    """
    args, kwargs, node = given
    found = [one for one in (*args, *kwargs.values()) if type(one) is Described and one.role == "function"]
    if len(found) == 1 and len(args) + len(kwargs) <= 3:
        return found[0]
    tensors = [one for one in flat([*args, *kwargs.values()]) if is_tensor(one)]
    if not tensors or any(one.device in (None, "cpu", "meta") or one.device != tensors[0].device for one in tensors):
        return MISSING  # it may have moved them
    made = run.tensor(tensors[0].device, node)
    made.meaning = DATA
    return made
