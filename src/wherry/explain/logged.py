"""One traceback of a log: its entries become frames that the rest of the post-mortem can look at.

The names in them mean what `belief` found when it read the program. Where the sources are not here, or do not lead to the
failing line, only its text is left, and what can be said of that.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wherry import tree
from wherry.explain.belief import Ending, Stop, replay
from wherry.explain.belief.values import DATA, Activation, Closure
from wherry.explain.diagnosis import Culprit, Diagnosis, Excerpt
from wherry.explain.frames import Frame
from wherry.explain.general import answer, told
from wherry.explain.log import Entry, Traceback
from wherry.explain.message import Complaint, Message
from wherry.explain.postmortem import conclude
from wherry.explain.scene import Operand, Scene, complete
from wherry.explain.source import Function, Site, Source, source_of
from wherry.explain.stray import Stray
from wherry.explain.suspects import operands_of, suspect
from wherry.explain.tensors import facts_of, is_operand
from wherry.tree import MISSING, Described

_SECONDS = 0.5  # for reading a program


class LoggedFrame(Frame):
    """An entry of a traceback, of which the text of the program tells what its names mean."""

    def __init__(self, activation: Activation, entry: Entry, node: ast.AST | None) -> None:
        self.activation = activation
        self.line = entry.line
        self.is_users = True
        self.file = activation.source.file
        self.code: Any = activation.code
        self._node = node
        self._entry = entry
        shown = {name: value for name, value in activation.globals.items() if _shown(value)}
        self.frame: Any = types.SimpleNamespace(f_globals=shown, f_code=self.code, f_back=None)
        names = activation.names
        if activation.around is not None and activation.function is not None:
            used = {part.id for part in ast.walk(activation.function) if isinstance(part, ast.Name)}
            around: Activation | None = activation.around
            while around is not None:
                names = {**{k: v for k, v in around.names.items() if k in used}, **names}
                around = around.around
        self._names = {name: value for name, value in names.items() if _shown(value)}
        if activation.function is None:
            self._names = shown

    @property
    def names(self) -> dict[str, Any]:  # type: ignore[override]
        return self._names

    @property
    def source(self) -> Source:  # type: ignore[override]
        return self.activation.source

    @property
    def function(self) -> Function | None:  # type: ignore[override]
        return self.activation.function

    @property
    def node(self) -> ast.AST | None:  # type: ignore[override]
        return self._node or _marked(self.source, self._entry) or _computed_in(self.source.statement(self.line))

    def kind_of(self, name: str) -> str:
        function = self.function
        if function is None:
            return "global"
        spec = function.args
        every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
        if name in [argument.arg for argument in every]:
            return "argument"
        if name in self.activation.names:
            return "local"
        around = self.activation.around
        while around is not None:
            if name in around.names:
                return "closure"
            around = around.around
        return "global"

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if type(owner) is not Described:
            return MISSING
        found = tree.attribute(owner, node.attr)
        is_function = type(found) is Described and type(found.meaning) is Closure
        return MISSING if is_function and found.meaning.kind == "property" else found

    def _item(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if tree.is_tensor(owner):
            key = self.value(node.slice)
            return tree.item(owner, key) if type(key) in (str, int) and owner.parts else MISSING
        found = super()._item(node) if owner is not MISSING else MISSING
        if found is MISSING and isinstance(owner, dict):
            found = owner.get(MISSING, MISSING)
            every = list(owner.values())
            if found is MISSING and every and self.value(node.slice) is MISSING:
                # Whichever it was: all of them are alike, or it is not known.
                alike = {v.device if type(v) is Described else None for v in every}
                found = every[0] if len(alike) == 1 else MISSING
        return found


def _shown(value: Any) -> bool:
    return value is not MISSING and not (
        type(value) is Described and value.role == "namespace" and value.name.startswith("builtins.")
    )


def _computed_in(statement: ast.stmt | None) -> ast.AST | None:
    """What a statement computes, where that is one call or one operation: the failure is in there."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr) else None
    return value if isinstance(value, ast.Call | ast.BinOp) else statement


def _asks_for_dtype(statement: ast.AST | None) -> ast.AST | None:
    """The call of a statement that asks for a dtype, or moves what has one, if it is the only one."""
    calls = [node for node in ast.walk(statement or ast.Pass()) if isinstance(node, ast.Call)]
    found = [
        node for node in calls
        if (isinstance(node.func, ast.Attribute) and node.func.attr in ("double", "to", "mps", "type"))
        or any(keyword.arg == "dtype" for keyword in node.keywords)
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _marked(source: Source, entry: Entry) -> ast.AST | None:
    """The expression that the marks below the line underline."""
    text = source.line(entry.line)
    if entry.span is None or not entry.code or entry.code not in text:
        return None
    start = text.index(entry.code)
    first, last = (len(text[: start + column].encode("utf-8", "replace")) for column in entry.span)
    node = source.running(entry.line, (entry.line, entry.line, first, last))
    return None if isinstance(node, ast.stmt) else node


def explain_traceback(found: Traceback, read: Message, root: Path) -> Diagnosis:
    """What can be said of one traceback.

    Args:
        found: The traceback.
        read: What its error says.
        root: Where to look for sources that are not where it says.
    """
    error = f"{found.kind}: {found.text.strip().splitlines()[0] if found.text.strip() else ''}"
    entries = _users(found)
    sources = [_source(entry, root) for entry in entries]
    stops: list[Stop] = []
    for entry, source in zip(entries, sources, strict=True):
        if source is None:
            stops.clear()  # what it called can still be followed from there
        else:
            stops.append(Stop(source, entry.line, _function_in(entry, source)))
    if stops and sources[-1] is not None:
        try:
            ending = replay(read, stops, _finder(stops, root), time.thread_time() + _SECONDS)
            diagnosis = None if ending is None else _of_ending(ending, read, entries, error)
        except Exception:  # noqa: BLE001 - whatever a stranger's program does to us, its error has an answer
            diagnosis = None
        if diagnosis is not None:
            return diagnosis
    return _of_line(found, read, entries, sources, error)


def _of_ending(ending: Ending, read: Message, entries: list[Entry], error: str) -> Diagnosis | None:
    frames: list[Frame] = []
    for number, activation in enumerate(ending.stack):
        entry = next(
            (e for e in reversed(entries) if _function_in(e, activation.source) == activation.code.co_name
             and activation.line <= e.line <= activation.last),
            Entry(activation.source.file, activation.line, activation.code.co_name),
        )  # fmt: skip
        node = ending.node if not number else ending.stack[number - 1].call
        if not number and node is None and entry.span is None and read.complaint is Complaint.DTYPE:
            node = _asks_for_dtype(activation.source.statement(entry.line))
        frames.append(LoggedFrame(activation, entry, node))
    scene = Scene(RuntimeError(error), read, frames, [], op=read.op, deadline=time.thread_time() + 0.5)
    if ending.operands:
        every = [Operand(value, facts_of(value), argument) for argument, value in ending.operands if is_operand(value)]
    else:
        every = None
    complete(scene, every)
    stray = suspect(scene)
    if stray is None or (stray.value is MISSING and _unsure(scene)):
        return None
    if _contradicted(scene, stray, entries):
        return None
    guessed = ending.node is None and ending.expects and scene.message.complaint is not Complaint.GRADIENT
    if guessed and not (ending.exact and _met(scene, stray, entries)):
        return None
    return conclude(scene, error)


def _contradicted(scene: Scene, stray: Stray, entries: list[Entry]) -> bool:
    """Whether the error itself says of another part of the line that it is the one."""
    named = told(scene.message, scene.here.source.line(entries[-1].line))
    if named is None or named in (stray.name, stray.via):
        return False
    value = scene.here.value(ast.parse(named, mode="eval").body)
    return type(value) is Described and value.device not in (None, scene.message.found)


def _met(scene: Scene, stray: Stray, entries: list[Entry]) -> bool:
    """Whether the stray can have met something that is where it should be: else it is at fault by guess only."""
    if stray.value is MISSING or stray.expected in (None, "cpu"):
        return True
    if any(operand.facts.device == stray.expected for operand in scene.operands):
        return True
    if told(scene.message, scene.here.source.line(entries[-1].line)) == stray.name:
        return True
    # The text makes it on the CPU, and not a loader by what it is called; something beside it is not known.
    made_here = type(stray.value) is Described and stray.value.meaning != DATA
    return made_here and stray.device == "cpu" and bool(_unknown(scene))


def _unsure(scene: Scene) -> bool:
    """Whether several of the operands may be the one that is not known."""
    if scene.message.complaint is not Complaint.MISMATCH:
        return False
    return len(_unknown(scene)) != 1


def _unknown(scene: Scene) -> list[ast.AST]:
    """The operands of the failing expression that may be tensors and of which nothing is known."""
    return [
        node for node in operands_of(scene.node)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.BinOp)
        and scene.here.value(node) is MISSING
        and not (isinstance(node, ast.Name) and getattr(builtins, node.id, None) is not None)
    ]  # fmt: skip


def _of_line(
    found: Traceback, read: Message, entries: list[Entry], sources: list[Source | None], error: str
) -> Diagnosis:
    """What the text of the error and the failing line alone tell."""
    entry = entries[-1] if entries else (found.entries[-1] if found.entries else None)
    source = sources[-1] if sources else None
    line = ""
    if entry is not None:
        line = entry.code or (source.line(entry.line).strip() if source is not None else "")
    why, fix = answer(read, line)
    site = None if entry is None else Site(entry.file, entry.line, entry.function)
    absent = [one.file for one, of in zip(entries, sources, strict=True) if of is None and not one.file.startswith("<")]
    if absent:
        name = re.split(r"[/\\]", absent[-1])[-1]
        why = f"{name} is not here, or has changed, so the message is all there is to go by. {why}"
    excerpt = Excerpt(site, line) if site is not None and line else None
    named = told(read, line) if read.complaint is Complaint.MISMATCH else None
    culprit = None if named is None else Culprit(named, read.found, read.others, None, None, None, "not-moved")
    return Diagnosis(error, site, read.op, culprit, (), why, fix, failed=excerpt)


# -- where the sources are


def _users(found: Traceback) -> list[Entry]:
    """The entries in the program's own files, with comprehensions as part of the function they stand in."""
    kept: list[Entry] = []
    for entry in found.entries:
        if not entry.is_users:
            continue
        name = _function_name(entry)
        if name in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>") and kept and kept[-1].file == entry.file:
            kept[-1] = Entry(entry.file, entry.line, kept[-1].function, entry.code, entry.span)
        else:
            kept.append(entry)
    return kept


def _function_name(entry: Entry) -> str:
    name = (entry.function or "<module>").partition("(")[0]
    return name.rpartition(".")[2] if not name.startswith("<") else name


def _function_in(entry: Entry, source: Source) -> str:
    """The function of an entry; pytest leaves out the outermost."""
    if entry.function is None:
        around = source.function_of(source.statement(entry.line))
        return getattr(around, "name", "<module>")
    return _function_name(entry)


def _source(entry: Entry, root: Path) -> Source | None:
    """The source of an entry: the file it names, or one of that name below a folder, if it holds the line that is shown."""
    for path in _places(entry.file, root):
        source = source_of(path)
        if source.lines and (not entry.code or entry.code in source.line(entry.line)):
            return source
    return None


def _places(file: str, root: Path) -> Iterator[str]:
    """Where a file may be: there, or below a folder by as much of its path as is there."""
    parts = [part for part in file.replace("\\", "/").split("/") if part not in ("", ".", "..", "~")]
    try:
        if Path(file).is_file():
            yield file
        for position in range(len(parts)):
            below = root.joinpath(*parts[position:])
            if ":" not in parts[position] and below.is_file():
                yield str(below)
    except (OSError, ValueError):  # no name of a file
        return


def _finder(stops: list[Stop], root: Path) -> Any:
    """Finds the source of a module by its name: beside the program's files, or below the folder."""
    folders = list(dict.fromkeys([*(Path(stop.source.file).parent for stop in stops), root]))

    def find(name: str) -> Source | None:
        parts = name.lstrip(".").split(".")
        if parts[0] in sys.stdlib_module_names or not all(part.isidentifier() for part in parts):
            return None
        for folder in folders:
            for up in (folder, folder.parent) if name.startswith("..") else (folder,):
                for path in (up.joinpath(*parts).with_suffix(".py"), up.joinpath(*parts, "__init__.py")):
                    try:
                        if path.is_file() and path.stat().st_size < 1_000_000:
                            return source_of(str(path))
                    except OSError:
                        continue
        return None

    return find
