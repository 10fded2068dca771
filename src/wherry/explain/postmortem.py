"""From an exception to a `Diagnosis`. Never raises, never waits long, never touches the exception.

Everything between the exception and the diagnosis holds frames and tensors, so it stays in here, and is gone when this
returns.
"""

from __future__ import annotations

import ast
from typing import Any

from wherry import tree
from wherry.explain import causes
from wherry.explain.case import Case
from wherry.explain.diagnosis import Culprit, Diagnosis, Excerpt, Operand
from wherry.explain.origin import Origin, trace
from wherry.explain.scene import Scene, examine
from wherry.explain.source import Source
from wherry.explain.suspects import Stray, siblings_of, suspect
from wherry.explain.tensors import facts_of, is_operand


def explain_exception(exc: BaseException) -> Diagnosis | None:
    """Explain a device error: which tensor did not get moved, where it comes from, why, and what to do.

    Works on real devices and in rehearsals alike. Reads the frames of the exception's traceback without running any of
    the program's code, changes nothing, and cannot fail: what it cannot tell, it leaves out.

    >>> import torch, wherry
    >>> with wherry.rehearse("cuda"):
    ...     try:
    ...         scale = torch.ones(2)
    ...         torch.ones(2, device="cuda") * scale
    ...     except RuntimeError as error:
    ...         print(wherry.explain_exception(error).culprit.name)
    scale

    Args:
        exc: The exception, with its traceback. Of a chain, the first that is about devices is explained.

    Returns:
        The diagnosis, or None where the exception has nothing to do with devices or no frame of the user's is on it.
    """
    seen: set[int] = set()
    one: BaseException | None = exc
    while one is not None and id(one) not in seen and len(seen) < 10:
        seen.add(id(one))
        try:
            found = _explain(one)
        except Exception:  # noqa: BLE001 - a post-mortem that fails must not hide the error it was to explain
            found = None
        if found is not None:
            return found
        one = one.__cause__ or one.__context__
    return None


def _explain(exc: BaseException) -> Diagnosis | None:
    scene = examine(exc)
    if scene is None:
        return None
    stray = suspect(scene)
    if stray is None:
        return _without_culprit(scene)
    origin = trace(stray, scene)
    case = Case(scene, stray, origin)
    cause, advice = causes.of(case)
    site = scene.here.site
    return Diagnosis(
        error=f"{type(exc).__name__}: {_first_line(exc)}",
        site=site,
        op=scene.op,
        culprit=Culprit(
            name=stray.name,
            device=stray.device,
            expected_device=stray.expected,
            shape=None if stray.facts is None else stray.facts.shape,
            dtype=None if stray.facts is None else stray.facts.dtype,
            origin=None if origin is None else origin.site,
            kind=cause.name,
            held_by=case.held_by,
        ),
        operands=_operands(scene),
        why=advice.why,
        fix=advice.fix,
        siblings=_siblings(case),
        failed=_failed(scene, stray),
        made=None if origin is None else _made(origin),
    )


def _without_culprit(scene: Scene) -> Diagnosis:
    read = scene.message
    devices = " and ".join(read.devices) or "more than one device"
    return Diagnosis(
        error=f"{type(scene.error).__name__}: {_first_line(scene.error)}",
        site=scene.here.site,
        op=scene.op,
        culprit=None,
        operands=_operands(scene),
        why=f"{read.complaint.value.capitalize()}: this line brings together {devices}, and which tensor is at fault cannot be told from here.",
        fix="Print x.device for each tensor of this line, and move the one that differs.",
        failed=_failed(scene, None),
    )


def _first_line(exc: BaseException) -> str:
    try:
        return BaseException.__str__(exc).strip().split("\n", 1)[0]
    except Exception:  # noqa: BLE001 - an argument's own __str__
        return ""


def _operands(scene: Scene) -> tuple[Operand, ...]:
    return tuple(Operand(o.name, o.argument, o.facts.device, o.facts.shape, o.facts.dtype) for o in scene.operands[:12])


def _siblings(case: Case) -> tuple[str, ...]:
    names = siblings_of(case.stray, case.scene)
    if case.path is not None and case.path is not case.stray.found:
        other = Stray(
            case.path.text,
            case.stray.device,
            case.stray.expected,
            case.stray.frame,
            case.stray.value,
            case.stray.facts,
            case.path,
        )
        more = siblings_of(other, case.scene)
        names = more if len(more) > len(names) else names
    return tuple(dict.fromkeys(names))


# -- the lines to show


def _failed(scene: Scene, stray: Stray | None) -> Excerpt:
    here = scene.here
    source = here.source
    node = scene.node
    line = here.line
    marks: list[tuple[int, int, str]] = []
    if stray is not None and stray.frame is here:
        marks += _mark(source, stray.node or _named(scene, stray), line, f"{stray.device or ''}!")
    if stray is not None and not marks and isinstance(node, ast.expr):
        marks += _mark(source, node, line, f"{stray.device or ''}!")
    elif node is not None:
        for part, value in scene.leaves():
            if is_operand(value) and tree.is_tensor(value):
                device = facts_of(value).device
                if device is not None and stray is not None and device != stray.device:
                    marks += [
                        m
                        for m in _mark(source, part, line, device)
                        if not any(m[0] < b and a < m[1] for a, b, _ in marks)
                    ]
    return Excerpt(here.site, source.line(line), tuple(marks))


def _named(scene: Scene, stray: Stray) -> ast.AST | None:
    """The part of the failing expression that the stray hangs in."""
    if stray.found is None:
        return None
    names = {stray.via or stray.found.root, stray.found.root}
    for node, value in scene.leaves():
        if scene.here.source.text(node) in names or value is stray.found.owners[:1]:
            return node
    return None


def _mark(source: Source, node: ast.AST | None, line: int, word: str) -> list[tuple[int, int, str]]:
    if node is None or getattr(node, "lineno", None) != line:
        return []
    first: Any = getattr(node, "col_offset", 0)
    last: Any = getattr(node, "end_col_offset", 0)
    encoded = source.line(line).encode("utf-8", "surrogatepass")
    if getattr(node, "end_lineno", line) != line:
        last = len(encoded)
    return [(len(encoded[:first].decode("utf-8", "replace")), len(encoded[:last].decode("utf-8", "replace")), word)]


def _made(origin: Origin) -> Excerpt | None:
    text = origin.source.line(origin.site.line)
    return Excerpt(origin.site, text, ()) if text.strip() else None
