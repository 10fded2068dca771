"""A live exception: its frames, the operands that could not meet, and the names by which the program knows them.

`examine(exc)` gives a `Scene`. Operands come from three places, the first that has any: the arguments of the op, where a
dispatch mode saw it; the locals of the library's innermost frames; the expression that stands on the user's line. Each is
then looked for in what the user's frames name: in the failing expression first, then inside the objects that stand in it
(the weight in a loss, the state in an optimizer), then among the locals, then in the frames further out.
"""

from __future__ import annotations

import ast
import builtins
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from wherry import callsite, tree
from wherry.explain import message
from wherry.explain.frames import NO_TENSOR, Frame
from wherry.explain.message import Complaint, Message
from wherry.explain.tensors import Facts, facts_of, is_generator, is_operand
from wherry.tree import MISSING, Found

NOTEBOOK = frozenset({"get_ipython", "In", "Out", "exit", "quit", "open"})
"""Names of a notebook that hold the whole notebook."""
_SECONDS = 0.1  # for all searches together


@dataclass(slots=True)
class Operand:
    """A tensor or a generator that took part in the call that failed. Alive only while a post-mortem runs.

    Attributes:
        value: The object.
        facts: What is known of it.
        argument: What the op or the library calls it, or None.
        name: How the user's line writes it, or None where it has no name.
        frame: The frame where that name means it.
        found: The path from something named to it.
        direct: Whether the failing expression itself names it.
    """

    value: Any
    facts: Facts
    argument: str | None = None
    name: str | None = None
    frame: Frame | None = None
    found: Found | None = None
    direct: bool = False


@dataclass(slots=True)
class Scene:
    """What is known of a failure.

    Attributes:
        error: The exception.
        message: Its text, taken apart.
        frames: The user's frames, the innermost first.
        inner: The library's frames further in, the innermost first.
        op: The op that was called, or None.
        operands: What could not meet, and what took part in it.
        deadline: When to stop looking, on the clock of `time.thread_time`, so that a busy machine changes no answer.
    """

    error: BaseException
    message: Message
    frames: list[Frame]
    inner: list[Frame]
    op: str | None = None
    operands: list[Operand] = field(default_factory=list[Operand])
    deadline: float = 0.0

    @property
    def here(self) -> Frame:
        """The innermost frame of the user's."""
        return self.frames[0]

    @property
    def node(self) -> ast.AST | None:
        """The expression that failed."""
        node = self.here.node
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            node = self.here.source.parent(node) or node  # the assignment, of which Python points at the target
        return head(node)

    def leaves(self) -> Iterator[tuple[ast.expr, Any]]:
        """The parts of the failing expression whose values can be had."""
        return self.here.leaves(self.node)

    def late(self) -> bool:
        return time.thread_time() > self.deadline


def examine(exc: BaseException) -> Scene | None:
    """Look at an exception; None where it has nothing to do with devices, or no frame of the user's."""
    read = message.read(type(exc).__name__, text_of(exc))
    if read is None:
        return None
    users, inner = _frames(exc)
    if not users:
        return None
    scene = Scene(exc, read, users, inner, op=read.op, deadline=time.thread_time() + _SECONDS)
    complete(scene)
    return scene


def complete(scene: Scene, operands: list[Operand] | None = None) -> None:
    """Find the operands of a scene, unless they are known, and their names."""
    scene.operands = list(_distinct(_participants(scene) if operands is None else operands))
    for operand in scene.operands[:40]:
        name(operand, scene)


def text_of(exc: BaseException) -> str:
    """The text of an exception, of the strings it was made with: any other argument would be asked for its own."""
    sent = tree.instance_dict(exc).get("tb") if type(exc).__name__ in ("_RemoteTraceback", "RemoteTraceback") else None
    args = vars(BaseException)["args"].__get__(exc)
    return sent if type(sent) is str else " ".join(part for part in args if type(part) is str)


def group_members(exc: BaseException) -> list[BaseException]:
    """The exceptions of an exception group."""
    group = vars(builtins).get("BaseExceptionGroup")
    return list(vars(group)["exceptions"].__get__(exc)) if group is not None and group in tree.mro(exc) else []


def head(node: ast.AST | None) -> ast.AST | None:
    """The part of a compound statement that its own line runs."""
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    if isinstance(node, ast.If | ast.While):
        return node.test
    if isinstance(node, ast.With | ast.AsyncWith):
        return ast.Tuple([item.context_expr for item in node.items])
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Try):
        return None
    return node


def _frames(exc: BaseException) -> tuple[list[Frame], list[Frame]]:
    """The user's frames and those further in, each innermost first."""
    is_users = callsite.judge()
    frames: list[Frame] = []
    entry = exc.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        frames.append(Frame(entry.tb_frame, entry.tb_lineno or 0, entry.tb_lasti, is_users=is_users(code.co_filename)))
        entry = entry.tb_next
    if not frames:
        return [], []
    if not any(frame.is_users for frame in frames):
        # All of it is installed: what is not torch's stands for the user.
        for frame in frames:
            frame.is_users = not callsite.is_library(frame.file)
    users = [frame for frame in reversed(frames) if frame.is_users]
    inner: list[Frame] = []
    for frame in reversed(frames):
        if frame.is_users:
            break
        inner.append(frame)
    if users:
        # Whoever called the outermost frame of the traceback is still there, with what it named.
        outer = users[-1].frame.f_back
        while outer is not None and len(users) < 12:
            if is_users(outer.f_code.co_filename):
                users.append(Frame(outer, outer.f_lineno, outer.f_lasti, is_users=True))
            outer = outer.f_back
    return users, inner


# -- what took part


def _participants(scene: Scene) -> list[Operand]:
    for frame in scene.inner:
        found = list(_of_dispatch(frame, scene))
        if found:
            return found
    for frame in scene.inner[:12]:
        found = list(_of_locals(frame))
        if _tells(scene.message, found):
            return found
    return list(_of_expression(scene))


def _of_dispatch(frame: Frame, scene: Scene) -> Iterator[Operand]:
    """The arguments of the op that a dispatch mode was called for."""
    if frame.code.co_name != "__torch_dispatch__":
        return
    names = frame.names
    func: Any = names.get("func")
    if type(func).__module__ != "torch._ops" or type(func).__name__ != "OpOverload":
        return
    from wherry.dispatch import signature  # torch is loaded: it called

    known = signature(func)
    scene.op, arguments = known.name, known.arguments
    args, kwargs = names.get("args"), names.get("kwargs")
    pairs: list[tuple[str | None, Any]] = []
    if type(args) is tuple:
        pairs += [(arguments[i] if i < len(arguments) else None, value) for i, value in enumerate(args)]
    if type(kwargs) is dict:
        pairs += list(kwargs.items())
    for name, value in pairs:
        yield from _operands_in(name, value)


def inside_library(scene: Scene, device: str | None) -> Iterator[Operand]:
    """What the library's frames hold on a device, by name, the innermost first: a temporary was computed from it."""
    for frame in scene.inner[:12]:
        for operand in _of_locals(frame):
            if operand.facts.device == device and not scene.late():
                name(operand, scene)
                if operand.name is not None:
                    yield operand


def _operands_in(name: str | None, value: Any, depth: int = 2) -> Iterator[Operand]:
    if is_operand(value):
        yield Operand(value, facts_of(value), name)
    elif depth and type(value) in (list, tuple, dict):
        for _, part in tree.children(value):
            yield from _operands_in(name, part, depth - 1)


def _of_locals(frame: Frame) -> Iterator[Operand]:
    """The tensors among the locals of a library's frame, and those that its `self` holds."""
    for name, value in list(frame.names.items()):
        yield from _operands_in(name, value)
    holder = frame.names.get("self", MISSING)
    if holder is not MISSING and tree.is_module(holder):
        for step, value in tree.children(holder):
            if step.kind in (tree.Kind.PARAMETER, tree.Kind.BUFFER):
                yield from _operands_in(str(step.key), value)


def _of_expression(scene: Scene) -> Iterator[Operand]:
    """The tensors that stand in the failing expression, and those in the containers and objects that do."""
    later: list[tuple[str, Any]] = []
    for node, value in scene.leaves():
        if is_operand(value):
            yield Operand(value, facts_of(value))
        elif type(value) in (list, tuple, dict):
            yield from _operands_in(None, value)
        else:
            later.append((scene.here.source.text(node), value))
    for found in tree.search(later, most=3_000, deadline=scene.deadline, depth=5):
        if is_operand(found.value) and found.steps:
            yield Operand(found.value, facts_of(found.value))


def _tells(read: Message, operands: list[Operand]) -> bool:
    """Whether these operands can be those that the error complains of."""
    devices = {operand.facts.device for operand in operands} - {None}
    if read.complaint in (Complaint.NUMPY, Complaint.HOST_ONLY, Complaint.PINNING):
        return any(device != "cpu" for device in devices)
    if read.complaint is Complaint.GENERATOR:
        return any(is_generator(operand.value) for operand in operands)
    if read.complaint in _OF_ONE:
        return bool(operands)
    return len(devices) > 1


_OF_ONE = (
    *(Complaint.DTYPE, Complaint.ABSENT, Complaint.KERNEL, Complaint.SIZES, Complaint.ORDINAL, Complaint.CHECKPOINT),
)
"""Complaints of one operand, whatever the others are."""


def _distinct(operands: Iterable[Operand]) -> Iterator[Operand]:
    """Each object once; at most as many as somebody would read."""
    seen: set[int] = set()
    for operand in operands:
        if id(operand.value) not in seen:
            seen.add(id(operand.value))
            yield operand
        if len(seen) >= 400:
            return


# -- what it is called


def name(operand: Operand, scene: Scene) -> None:
    """Find the name of an operand."""
    for frame, roots, direct in _stages(scene):
        if scene.late():
            return
        found = find(operand.value, operand.facts, roots, scene)
        if found is not None:
            operand.name, operand.frame, operand.found, operand.direct = found.text, frame, found, direct
            if direct:
                asked = next((n for n, v in scene.leaves() if v is (found.owners or (found.value,))[0]), None)
                written = None if asked is None else _as_written(asked, found, scene)
                operand.name = written or operand.name
            return


def _as_written(node: ast.expr, found: Found, scene: Scene) -> str | None:
    """The attribute that the program asks for, where a property or `__getattr__` answers with what was found inside."""
    if not found.steps:
        return None
    source, here = scene.here.source, scene.here
    whole: ast.AST | None = node
    while True:
        assert whole is not None
        parent = source.parent(whole)
        if isinstance(parent, ast.Attribute) and here.value(parent) is MISSING and parent.attr not in NO_TENSOR:
            grand = source.parent(parent)
            if isinstance(grand, ast.Call) and grand.func is parent:
                return None  # a method
            return source.text(parent)
        if (
            isinstance(parent, ast.Subscript)
            and parent.value is whole
            and here.value(parent) is MISSING
            and len(found.steps) > 1
        ):
            key = parent.slice.value if isinstance(parent.slice, ast.Constant) else None
            return source.text(parent) if key is not None and found.steps[-1].key == key else None
        return None


def _stages(scene: Scene) -> Iterator[tuple[Frame, list[tuple[str, Any]], bool]]:
    """Where to look for a name: frame, starting points, and whether they stand in the failing expression."""
    here = scene.here
    yield here, [(here.source.text(node), value) for node, value in scene.leaves()], True
    for frame in scene.frames:
        yield frame, [(k, v) for k, v in frame.names.items() if k not in NOTEBOOK], False
    yield here, globals_of(here), False


def globals_of(frame: Frame) -> list[tuple[str, Any]]:
    """The globals that a frame sees, without those of the language."""
    found = frame.frame.f_globals
    return (
        [(k, v) for k, v in list(found.items()) if type(k) is str and not k.startswith("__")]
        if type(found) is dict
        else []
    )


def find(target: Any, facts: Facts, roots: list[tuple[str, Any]], scene: Scene) -> Found | None:
    """The shortest path from some starting points to an object, or to another over the same storage."""
    return first(
        roots,
        lambda value: (
            value is target
            or (facts.storage is not None and tree.is_tensor(value) and facts_of(value).storage == facts.storage)
        ),
        scene,
    )


def first(roots: list[tuple[str, Any]], wanted: Callable[[Any], bool], scene: Scene) -> Found | None:
    """The first object of a search that is wanted."""
    for found in tree.search(roots, most=6_000, deadline=scene.deadline):
        if wanted(found.value):
            return found
    return None
