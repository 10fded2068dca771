"""Where the elements of a batch come from that a loader hands out: the line of the data set that makes them.

The loop is where a batch appears, and what its loader puts together there has no line of the program's. `handed_out` goes on
from that loop, to what the data set returns: which element it is, by its place or its key, and where that was made. The
program's own `__getitem__` is read, not run; where it does not tell, what the data set holds is searched for what is alike.

Source: torch/utils/data/_utils/collate.py, which makes a batch of the elements of each place and of each key.
"""

from __future__ import annotations

import ast
import types
from dataclasses import replace
from typing import Any

from wherry import tree
from wherry.callsite import judge
from wherry.explain.frames import Frame
from wherry.explain.scene import Scene
from wherry.explain.source import Site, Source, source_of
from wherry.explain.stray import Stray, making_of
from wherry.explain.tensors import facts_of
from wherry.explain.written import Origin, Trail, Where, element_of
from wherry.tree import MISSING

ARRAY = "array"
"""`Origin.how` of an array of NumPy, of whose parts a loader makes tensors."""

_RETURNING = ("__getitem__", "__iter__")


def loop_of(origin: Origin | None) -> ast.For | ast.AsyncFor | None:
    """The loop in which something appears, where that is all that is known of its origin."""
    node = None if origin is None else origin.node
    if origin is not None and origin.how == "for":
        while node is not None and not isinstance(node, ast.For | ast.AsyncFor):
            node = origin.source.parent(node)
    return node if isinstance(node, ast.For | ast.AsyncFor) else None


def handed_out(stray: Stray, origin: Origin | None, scene: Scene) -> Origin | None:
    """Where a data set makes what the stray is a batch of; None where it is none, or that cannot be told.

    Args:
        stray: A tensor.
        origin: Where it comes from, as far as is known.
        scene: What is known of the failure.
    """
    loop = loop_of(origin)
    if origin is None or loop is None:
        return None
    frame = next((f for f in scene.frames if f.file == origin.source.file and f.function is origin.function), None)
    at = Where(origin.source, origin.function, loop.lineno, frame)
    key = _key_of(stray, loop, scene)
    trail = Trail(scene.frames)
    written = None if key is None else _of_loader(_looped(loop.iter), key, at, trail)
    if written is not None and (_mentions(written.node, "torch", "th") or written.how == ARRAY):
        return written
    return _held(stray, key, loop, frame, scene)


def _looped(node: ast.expr) -> ast.expr:
    """The loader of a loop: that of `enumerate(loader)`, `tqdm(loader)`."""
    while isinstance(node, ast.Call) and node.args and not _is_loader(node):
        node = node.args[0]
    return node


def _is_loader(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].endswith("Loader")


def _key_of(stray: Stray, loop: ast.For | ast.AsyncFor, scene: Scene) -> object:
    """Which element of a batch the stray is: its place or its key; None where that cannot be told."""
    root = stray.name if stray.found is None else stray.found.root
    if isinstance(loop.target, ast.Tuple | ast.List):
        for place, target in enumerate(loop.target.elts):
            if isinstance(target, ast.Name) and target.id == root:
                return place
    for frame in scene.frames:
        for value in frame.names.values():
            if type(value) in (dict, list, tuple):
                for step, part in tree.children(value):
                    if part is stray.value:
                        return step.key
    node = _subscript(stray.name)
    return node.slice.value if node is not None and isinstance(node.slice, ast.Constant) else None


def _subscript(text: str) -> ast.Subscript | None:
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return node if isinstance(node, ast.Subscript) else None


# -- as it is written


def _of_loader(loader: ast.expr, key: object, at: Where, trail: Trail) -> Origin | None:
    """Where a loader's element of a key is made: in its collate function, or else in its data set."""
    made, at = _call(loader, at, trail)
    if made is None or not _is_loader(made):
        return None
    given = {keyword.arg: keyword.value for keyword in made.keywords}
    collate = given.get("collate_fn")
    if collate is not None:
        name = ast.unparse(collate).rpartition(".")[2]
        functions = [f for f in ast.walk(at.source.tree) if isinstance(f, ast.FunctionDef)] if at.source.tree else []
        found = [_returned(function, key, at.source, trail) for function in functions if function.name == name]
        return found[0] if found else None
    dataset, at = _call(made.args[0] if made.args else given.get("dataset"), at, trail)
    if dataset is None:
        return None
    name = ast.unparse(dataset.func).rpartition(".")[2]
    if name == "TensorDataset":
        return trail.of(dataset.args[key] if type(key) is int and key < len(dataset.args) else None, at)
    for cls in at.source.classes(name):
        for method in cls.body:
            if isinstance(method, ast.FunctionDef) and method.name in _RETURNING:
                return _returned(method, key, at.source, trail)
    return None


def _call(node: ast.expr | None, at: Where, trail: Trail) -> tuple[ast.Call | None, Where]:
    """The call that makes what an expression means, and the point where it stands."""
    origin = trail.of(node, at) if node is not None else None
    if origin is None or not isinstance(origin.node, ast.Call):
        return None, at
    return origin.node, Where(origin.source, origin.function, origin.site.line, trail.frame_of(origin.function))


def _returned(method: ast.FunctionDef, key: object, source: Source, trail: Trail) -> Origin | None:
    """Where a method makes the element of a key of what it returns."""
    values = [n.value for n in ast.walk(method) if isinstance(n, ast.Return | ast.Yield) and n.value is not None]
    inside = Where(source, method, 0)
    for value in values:
        whole = trail.of(value, inside) if isinstance(value, ast.Name) else None
        container = (
            Origin(Site(source.file, value.lineno, method.name), value, source, method) if whole is None else whole
        )
        element = element_of(container, key)
        if element is container or not isinstance(element.node, ast.expr):
            continue
        origin = trail.of(element.node, inside)
        if origin is not None:
            return replace(origin, how=ARRAY) if _is_array(origin, trail) else origin
    return None


def _is_array(origin: Origin, trail: Trail) -> bool:
    """Whether an expression is one of NumPy's: by its own words, or by those that made what it is called on."""
    if _mentions(origin.node, "torch", "th") or origin.node is None:
        return False
    if _mentions(origin.node, "np", "numpy"):
        return True
    at = Where(origin.source, origin.function, origin.site.line)
    for name in [part.id for part in ast.walk(origin.node) if isinstance(part, ast.Name)][:4]:
        earlier = trail.of_name(name, at)
        if earlier is not None and _mentions(earlier.node, "np", "numpy"):
            return True
    return False


def _mentions(node: ast.AST | None, *names: str) -> bool:
    return node is not None and any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


# -- as it is


def _held(stray: Stray, key: object, loop: ast.For | ast.AsyncFor, frame: Frame | None, scene: Scene) -> Origin | None:
    """Where that was made of which a data set holds the elements: what has the dtype of the batch, and else its sizes."""
    loader = _looped(loop.iter)
    if frame is None or stray.facts is None or not stray.facts.shape or frame.value(loader) is MISSING:
        return None
    dataset = tree.attribute(frame.value(loader), "dataset")
    collate = tree.instance_dict(frame.value(loader)).get("collate_fn")
    if dataset is MISSING or (type(collate) is types.FunctionType and judge()(collate.__code__.co_filename)):
        return None
    alike = [
        found
        for found in tree.search([("dataset", dataset)], most=2_000, deadline=scene.deadline)
        if _described(found.value) == (stray.facts.dtype, stray.facts.shape[1:])
    ]
    wanted = (key, stray.name)
    alike.sort(key=lambda found: not found.steps or found.steps[-1].key not in wanted)
    for found in alike:
        is_array = not tree.is_tensor(found.value)
        facts = None if is_array else facts_of(found.value)
        if facts is not None and facts.site is not None and judge()(facts.site.file):
            source = source_of(facts.site.file)
            node = making_of(facts, scene)[0]
            return Origin(
                Site(facts.site.file, facts.site.line, facts.site.function), node, source, source.function_of(node)
            )
        for owner, step in zip(reversed(found.owners), reversed(found.steps), strict=True):
            origin = Trail(scene.frames).of_attribute(owner, str(step.key))
            if origin is not None:
                return replace(origin, how=ARRAY) if is_array else origin
    return None


def _described(value: Any) -> tuple[str | None, tuple[int, ...]] | None:
    """The dtype of a tensor or an array, and the sizes of its elements."""
    if tree.is_tensor(value):
        facts = facts_of(value)
        return None if not facts.shape else (facts.dtype, facts.shape[1:])
    if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray" and value.ndim:
        return str(value.dtype), tuple(value.shape[1:])
    return None
