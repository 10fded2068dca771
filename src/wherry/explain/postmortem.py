"""From an exception to a `Diagnosis`. Never raises, never waits long, never touches the exception.

Everything between the exception and the diagnosis holds frames and tensors, so it stays in here, and is gone when this
returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from wherry import tree
from wherry.explain import causes
from wherry.explain.case import Case
from wherry.explain.diagnosis import Culprit, Diagnosis, Excerpt, Operand
from wherry.explain.general import answer
from wherry.explain.message import Complaint, Message
from wherry.explain.origin import Origin, trace
from wherry.explain.scene import Scene, examine, group_members, text_of
from wherry.explain.siblings import siblings_of
from wherry.explain.source import Site, Source
from wherry.explain.stray import Stray
from wherry.explain.suspects import operands_of, suspect
from wherry.explain.tensors import facts_of, is_operand

_SENT_HOME = ("Original Traceback (most recent call last)", "from user code:", "Traceback of TorchScript")
_REMOTE = ("_RemoteTraceback", "_ExceptionWithTraceback", "RemoteTraceback")


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
    try:
        for one in _chain(exc):
            found = _explain(one)
            if found is not None:
                return found
    except Exception:  # noqa: BLE001 - a post-mortem that fails must not hide the error it was to explain
        return None
    return None


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """An exception, the members of a group, and what it was raised from or while handling; what another process sent first."""
    seen: set[int] = set()
    todo = [exc]
    while todo and len(seen) < 20:
        one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        cause = vars(BaseException)["__cause__"].__get__(one)
        context = vars(BaseException)["__context__"].__get__(one)
        if cause is not None and type(cause).__name__ in _REMOTE:
            yield cause
        members = group_members(one)
        if not members:
            yield one
        todo += members
        if cause is not None:
            todo.append(cause)
        elif context is not None and not vars(BaseException)["__suppress_context__"].__get__(one):
            todo.append(context)


def _explain(exc: BaseException) -> Diagnosis | None:
    text = text_of(exc)
    if type(exc).__name__ != "AssertionError" and (
        any(words in text for words in _SENT_HOME) or type(exc).__name__ in _REMOTE
    ):
        # A worker, another process or a compiler sent its own traceback home as text: that is where it happened.
        from wherry.explain.log import explain_log

        return explain_log(text)
    scene = examine(exc)
    return None if scene is None else conclude(scene, f"{type(exc).__name__}: {_first_line(text)}")


def conclude(scene: Scene, error: str) -> Diagnosis:
    """From a scene to its diagnosis.

    Args:
        scene: What is known.
        error: The exception's type and the first line of its text.
    """
    stray = suspect(scene)
    if stray is None:
        here = scene.here
        line = here.source.line(here.line)
        return without_culprit(scene.message, error, here.site, line, operands=_operands(scene), op=scene.op)
    origin = trace(stray, scene)
    case = Case(scene, stray, origin)
    cause, advice = causes.of(case)
    return Diagnosis(
        error=error,
        site=scene.here.site,
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
        siblings=_siblings(case) if _strayed(scene) and _hang_together(case, cause.name) else (),
        failed=_failed(scene, stray),
        made=None if origin is None else _made(origin),
    )


def without_culprit(
    read: Message,
    error: str,
    site: Site | None,
    line: str = "",
    *,
    operands: tuple[Operand, ...] = (),
    op: str | None = None,
) -> Diagnosis:
    """What can be said where it cannot be told which tensor is at fault."""
    why, fix = answer(read, line)
    return Diagnosis(
        error=error,
        site=site,
        op=op or read.op,
        culprit=None,
        operands=operands,
        why=why,
        fix=fix,
        failed=None if site is None or not line.strip() else Excerpt(site, line),
    )


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _operands(scene: Scene) -> tuple[Operand, ...]:
    return tuple(Operand(o.name, o.argument, o.facts.device, o.facts.shape, o.facts.dtype) for o in scene.operands[:12])


def _strayed(scene: Scene) -> bool:
    """Whether something is where it should not be; else what is beside it is none the worse for it."""
    return scene.message.complaint not in (Complaint.KERNEL, Complaint.SIZES)


def _hang_together(case: Case, cause: str) -> bool:
    """Whether what is beside the stray is used as it is. Of a batch, some may have been moved as copies."""
    owner = case.path.owners[0] if case.path is not None and case.path.owners else None
    plain = any(tree.is_a(owner, cls) for cls in (dict, list, tuple)) or owner is None
    return not plain or cause in ("dropped-move", "recurrent-state", "numpy-of-device-tensor", "copy-before-move")


def _siblings(case: Case) -> tuple[str, ...]:
    own, held = (siblings_of(case.stray, path, case.scene) for path in (case.stray.found, case.path))
    names = held if len(held) > len(own) else own
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
        for part in operands_of(node):
            value = here.value(part)
            named = None if stray is None else stray.node
            if value is tree.MISSING and isinstance(node, ast.BinOp) and stray is not None and named is not None:
                if part is named or part in ast.walk(named) or named in ast.walk(part):
                    continue
                marks += _mark(source, part, line, stray.expected or "")  # the other side of the two
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
    for node, _ in scene.leaves():
        if scene.here.source.text(node) in names:
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
