"""A program that failed elsewhere, read like a run: what was where, when it came to the line of the traceback.

Where no process is left to look into, there is still the text. `replay` goes through the program's statements as a run
would, with what they say of devices: factories, moves, modules and what they register, optimizers, loaders, functions
called and returned from. It computes nothing else. At the line that failed it stops, with the names and what they mean:

    values      tensors, modules and functions, as far as the text describes them
    program     statements and expressions, and the way to the line that failed
    functions   the program's own functions, and imports     objects    its classes
    python      containers, loops, builtin functions
    pytorch     PyTorch's functions, methods of tensors      layers     modules and optimizers

A rehearsal without torch, so to speak; and as in one, what comes out is a scene that the rest of `wherry.explain` looks
at. What the text does not say (the answer of another library, a condition) is not known, and stays so.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from wherry.explain.belief import functions, layers, objects
from wherry.explain.belief.program import Run
from wherry.explain.belief.pytorch import REFUSED
from wherry.explain.belief.signals import Arrived, Jump, Raised, Return, Spent
from wherry.explain.belief.signals import Stop as Stop
from wherry.explain.belief.values import MISSING, Activation, Given
from wherry.explain.idioms import MOVES
from wherry.explain.message import Message
from wherry.explain.source import Source
from wherry.tree import Described


@dataclass(frozen=True, slots=True)
class Ending:
    """How a reading ended.

    Attributes:
        stack: The activations at the line that failed, the innermost first.
        node: The expression in which operands could not be together, or None where none was met.
        operands: Those operands, with the names of their arguments.
        exact: Whether the line was reached by the calls of the traceback.
        expects: Whether operands were to meet there, and did not.
    """

    stack: list[Activation]
    node: ast.AST | None
    operands: list[tuple[str | None, Any]]
    exact: bool
    expects: bool = False


def replay(
    read: Message, goal: list[Stop], find: Callable[[str], Source | None], deadline: float, *, strict: bool = False
) -> Ending | None:
    """Read a program up to the line that failed.

    Args:
        read: What the error says.
        goal: The entries of the traceback in the program's own files, the outermost first.
        find: The source of a module by its dotted name, or None.
        deadline: When to stop, on the clock of `time.thread_time`.
        strict: Let through what goes wrong in a statement: for tests.

    Returns:
        How it ended, or None where that line was not reached.
    """
    if read.dtype in REFUSED:
        # Of all that moves in that line, what has the dtype: if that can be told.
        found, _ = _read(Run(read, goal, find, deadline, strict=strict, waits=True))
        if found is not None and found.node is not None:
            return found
    first, undecided = _read(Run(read, goal, find, deadline, strict=strict))
    if first is None or (first.node is None and first.expects):
        # It did not come there, or nothing was wrong: some condition went the other way.
        for flipped in _ways(undecided):
            if time.thread_time() > deadline:
                break
            other, _ = _read(Run(read, goal, find, deadline, flipped=flipped, strict=strict))
            if other is not None and other.node is not None:
                return other
    return first


def _read(run: Run) -> tuple[Ending | None, list[ast.AST]]:
    """One reading, and the conditions that it had to guess."""
    try:
        _go(run)
    except Arrived as arrived:
        return Ending(arrived.snapshot.stack, arrived.node, arrived.operands, arrived.snapshot.exact), []
    except (Spent, RecursionError):
        pass
    guessed = [node for node, source in run.undecided.items() if not _moves_inside(node, source)]
    if run.snapshot is None:
        return None, guessed
    return Ending(run.snapshot.stack, None, [], run.snapshot.exact, expects=run.expects), guessed


def _moves_inside(node: ast.AST, source: Source) -> bool:
    """Whether a condition decides over a move: then the other way would make a stray where there was none."""
    return next(source.calls(node, *MOVES), None) is not None


def _ways(undecided: list[ast.AST]) -> Iterator[frozenset[ast.AST]]:
    if len(undecided) > 1:
        yield frozenset(undecided)
    yield from (frozenset([node]) for node in undecided[:12])


def _go(run: Run) -> None:
    first = run.goal[0]
    names: dict[str, Any] = {}
    functions.read_file(run, first.source, names, "__main__")
    if run.snapshot is not None and (run.snapshot.exact or first.function == "<module>"):
        return
    # It was called by somebody who is not in the log, or in a way that cannot be followed: call it.
    for stop in run.goal:
        if stop.function == "<module>":
            continue
        others = names if stop.source is first.source else {}
        if stop.source is not first.source:
            functions.read_file(run, stop.source, others, "read")
        _enter(run, stop, others)
        if run.snapshot is not None:
            return


def _enter(run: Run, stop: Stop, names: dict[str, Any]) -> None:
    """Call the function of an entry with arguments of which nothing is known."""
    node = stop.source.function_of(stop.source.statement(stop.line))
    if node is None or isinstance(node, ast.Lambda):
        return
    goal, run.goal = run.goal, run.goal[run.goal.index(stop) :]
    try:
        cls = stop.source.class_of(node)
        found = names.get(node.name, MISSING)
        if cls is not None:
            owner = _owner(run, cls, names, stop)
            found = objects.bind(objects.find_attribute(owner, node.name), owner) if owner is not None else MISSING
        if type(found) is Described and found.role == "function":
            functions.call_function(run, found, Given([], {}, node))
    except (Return, Jump, Raised):
        pass
    finally:
        run.goal = goal


def _owner(run: Run, cls: ast.ClassDef, names: dict[str, Any], stop: Stop) -> Described | None:
    """An object of a class: the one that the program made, else one made of nothing that is known."""
    described = names.get(cls.name, MISSING)
    if type(described) is not Described or described.role != "class":
        return None
    run.stack.append(Activation(stop.source, None, run.code(stop.source, None), names, names))
    try:
        owner = run.instances.get(cls) or objects.instantiate(run, described, Given([], {}, cls))
        if type(owner) is not Described:
            return None
        if owner.role == "module" and all(value.device == "cpu" for _, _, _, value in layers.walk(owner)):
            # Whoever calls it from outside of the program, such as a trainer, has moved it.
            layers.move(run, owner, run.away, cls)
        return owner
    finally:
        run.stack.pop()
