"""A program that is read like a run: its statements one after the other, with what is known of each value.

A loop runs a few times, a condition that is not known takes the way that leads to the failure. What a call
does is the business of `functions` (the program's own), `objects` (classes and attributes), `python` (containers and builtin
functions), `pytorch` and `layers`.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterable
from typing import Any

from wherry.callsite import Callsite
from wherry.explain.belief import expressions, statements
from wherry.explain.belief.signals import Arrived, Snapshot, Spent, Stop
from wherry.explain.belief.values import MISSING, Activation, Code, Made, device, flat, is_tensor
from wherry.explain.message import Complaint, Message
from wherry.explain.source import Function, Source
from wherry.tree import Described

_STEPS = 30_000


class Run:
    """One reading.

    Attributes:
        read: What the error says.
        goal: The entries of the traceback, the outermost first.
        away, home: The accelerator the error speaks of, and where the stray is by the error's words.
        default: The device of factories that are told none.
        stack: The activations, the outermost first.
        instances: The last object made of each class, by the class's node.
        pending: Functions of autograd that were applied and have not run backwards.
        short, grown: How many loops around run fewer times here than they did, and the lists that grew in one.
        undecided, flipped: Conditions that are not known, and those that go the other way than usual in this reading.
        strict: Let through what goes wrong in a statement: for tests.
        waits: Go on until something meets at the line that failed, also where the error is of a mere request.
    """

    def __init__(
        self,
        read: Message,
        goal: list[Stop],
        find: Callable[[str], Source | None],
        deadline: float,
        *,
        flipped: frozenset[ast.AST] = frozenset(),
        strict: bool = False,
        waits: bool = False,
    ) -> None:
        self.read = read
        self.goal = goal
        self.find = find
        self.deadline = deadline
        named = [name for name in read.devices if name not in ("cpu", "meta")]
        self.count = 1 + max([int(name.partition(":")[2] or 0) for name in named], default=0)
        self.away = indexed(named[0] if named else _by_complaint(read))
        if read.others in named:
            self.away = indexed(str(read.others))
        self.home = "cpu"
        self.current = 0
        self.default = "cpu"
        self.stack: list[Activation] = []
        self.instances: dict[ast.ClassDef, Described] = {}
        self.modules: dict[str, dict[str, Any]] = {}
        self.short = 0
        self.grown: dict[int, list[Any]] = {}
        self.pending: list[tuple[Described, Described, Any]] = []
        self.snapshot: Snapshot | None = None
        self.undecided: dict[ast.AST, Source] = {}
        self.flipped = flipped
        self.strict = strict
        self.waits = waits
        self._codes: dict[tuple[int, int], Code] = {}
        self._steps = 0

    # -- where we are

    @property
    def here(self) -> Activation:
        return self.stack[-1]

    def tick(self) -> None:
        self._steps += 1
        if self._steps > _STEPS or (not self._steps % 64 and time.thread_time() > self.deadline):
            raise Spent

    def at_goal(self) -> bool:
        """Whether the line that failed is running, however it was reached."""
        goal, here = self.goal[-1], self.here
        return (
            here.code.co_name == goal.function
            and here.line <= goal.line <= here.last
            and here.source.file == goal.source.file
        )

    def exactly(self) -> bool:
        """Whether the calls that led here are those of the traceback."""
        return len(self.stack) == len(self.goal) and all(
            one.code.co_name == stop.function and one.line <= stop.line <= one.last and one.source is stop.source
            for one, stop in zip(self.stack, self.goal, strict=True)
        )

    def leads_on(self, body: list[ast.stmt]) -> bool:
        """Whether the traceback passes through a block of the function that runs."""
        here = self.here
        return bool(body) and any(
            stop.source is here.source
            and stop.function == here.code.co_name
            and body[0].lineno <= stop.line <= (body[-1].end_lineno or body[-1].lineno)
            for stop in self.goal
        )

    @property
    def expects(self) -> bool:
        """Whether the failure is a meeting of operands, or one of a dtype that comes by, and not a mere request."""
        return self.waits or self.read.complaint in (
            Complaint.MISMATCH,
            Complaint.NUMPY,
            Complaint.HOST_ONLY,
            Complaint.GRADIENT,
        )

    def arrive(self) -> None:
        """Keep how things are at the line that failed, unless the right way there was seen before."""
        if not self.at_goal():
            return
        exact = self.exactly()
        if self.snapshot is None or exact or not self.snapshot.exact:
            self.snapshot = Snapshot(self.picture(), exact)
        if exact and not self.expects:
            raise Spent  # no operands to wait for

    def picture(self) -> list[Activation]:
        copies = []
        for one in reversed(self.stack):
            copy = Activation(
                one.source, one.function, one.code, dict(one.names), one.globals, one.around, one.line, one.last
            )
            copy.call, copy.bound, copy.cls = one.call, one.bound, one.cls
            copies.append(copy)
        return copies

    def conflict(self, node: ast.AST, operands: list[tuple[str | None, Any]]) -> None:
        """Operands that cannot be together: the failure, if this is where it was."""
        if not self.at_goal():
            return
        devices = {v.device for _, v in operands if type(v) is Described and v.device is not None}
        named = {indexed(name) for name in self.read.devices}
        if len(named) > 1 and not devices <= named and not any(":" not in n and n != "cpu" for n in self.read.devices):
            return
        raise Arrived(node, operands, Snapshot(self.picture(), self.exactly()))

    def guess(self, node: ast.AST, usual: bool) -> bool:
        """Which way a condition went that is not known; kept, so that another reading may try the other way."""
        self.undecided.setdefault(node, self.here.source)
        return usual is not (node in self.flipped)

    # -- going on

    def block(self, body: list[ast.stmt]) -> None:
        statements.block(self, body)

    def statement(self, node: ast.stmt) -> None:
        statements.statement(self, node)

    def bind(self, target: ast.expr, value: Any) -> None:
        statements.bind(self, target, value)

    def set_name(self, name: str, value: Any) -> None:
        statements.set_name(self, name, value)

    def value(self, node: ast.AST | None) -> Any:
        return expressions.value(self, node)

    # -- making values

    def code(self, source: Source, function: Function | None) -> Code:
        key = (id(source), id(function))
        if key not in self._codes:
            if function is None:
                self._codes[key] = Code("<module>", source.file)
            else:
                spec = function.args
                plain = [a.arg for a in (*spec.posonlyargs, *spec.args)]
                only = [a.arg for a in spec.kwonlyargs]
                name = "<lambda>" if isinstance(function, ast.Lambda) else function.name
                self._codes[key] = Code(
                    name, source.file, (*plain, *only), len(plain), len(only), (), getattr(function, "lineno", 1)
                )
        return self._codes[key]

    def made(self, node: ast.AST) -> Made:
        here = self.here
        return Made(Callsite(here.source.file, getattr(node, "lineno", here.line), here.code.co_name), here.code, node)

    def tensor(self, where: str | None, node: ast.AST, *, dim: int = 1, dtype: str | None = None) -> Described:
        """A new tensor, made here."""
        return Described("tensor", "Tensor", where, dim=dim, dtype=dtype, storage=object(), made=self.made(node))

    def view(self, of: Described, *, dim: int = 1) -> Described:
        """Another tensor over the same bytes."""
        found = Described("tensor", "Tensor", of.device, dim=dim, dtype=of.dtype, storage=of.storage, made=of.made)
        found.has_history = of.has_history or of.is_parameter
        found.meaning = of.meaning
        return found

    def meet(
        self, node: ast.AST, operands: Iterable[tuple[str | None, Any]], *, scalars: bool = True, dim: int | None = None
    ) -> Any:
        """What an op makes of its operands; if they are on several devices, that may be the failure.

        Args:
            node: The expression.
            operands: The op's arguments with their names.
            scalars: Whether a 0-dim tensor of the host may meet any device, as elementwise ops allow.
            dim: How many dimensions the result has, where that is known.
        """
        every = [(name, one) for name, value in operands for one in flat([value])]
        tensors = [(name, v) for name, v in every if is_tensor(v) and v.device is not None]
        solid = [(name, v) for name, v in tensors if not (scalars and v.dim == 0 and v.device == "cpu")] or tensors[:1]
        devices = list(dict.fromkeys(v.device for _, v in solid if v.device != "meta"))
        if len(devices) > 1:
            self.conflict(node, tensors)
        known = [v for _, v in every if is_tensor(v)]
        if not known:
            return MISSING
        where = (
            self.away
            if self.away in devices
            else next((d for d in devices if d != "cpu"), devices[0] if devices else None)
        )
        found = self.tensor(where, node, dim=max(v.dim for v in known) if dim is None else dim)
        found.has_history = any(v.has_history or v.is_parameter for v in known)
        wide = [v.dtype for v in known if v.dim or len(known) == 1]
        found.dtype = "float64" if "float64" in wide else None
        return found

    def device_of(self, value: Any, *, unknown: str | None = None) -> str | None:
        """The device that an argument names: a string, a number, a device; or `unknown`."""
        if type(value) is device:
            return value.name
        if is_tensor(value):
            return value.device
        if type(value) is int:
            return f"{self.away.partition(':')[0]}:{value}"
        if type(value) is str:
            kind, _, index = value.partition(":")
            if kind in ("cpu", "meta"):
                return kind
            return f"{kind}:{index or self.current}"
        return unknown


def indexed(name: str) -> str:
    """A device with its index: "cuda" is "cuda:0"."""
    return name if ":" in name or name in ("cpu", "meta") else f"{name}:0"


def _by_complaint(read: Message) -> str:
    """The accelerator, where the error names none by its device."""
    for name in (read.found, read.others):
        if name is not None and name.partition(":")[0] in ("cuda", "mps", "xpu"):
            return name
    return "cuda:0"
