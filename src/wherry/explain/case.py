"""A stray with all that is known about it: what the causes look at.

`Case` answers in the words of a diagnosis: what holds the stray, who made it in which function, which `.to` ran and passed
it by, how this program writes its device. Answers that cannot be had are None, and a cause that needs one does not apply.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wherry import tree
from wherry.explain.frames import Frame
from wherry.explain.idioms import MOVES, atom, factory_in, moves, receiver_of
from wherry.explain.message import Complaint
from wherry.explain.origin import Origin, origin_of_value
from wherry.explain.scene import NOTEBOOK, Scene, globals_of
from wherry.explain.source import Function, Site, Source, shortened
from wherry.explain.stray import Stray
from wherry.explain.tensors import facts_of, is_operand
from wherry.explain.written import class_sources
from wherry.tree import MISSING, Found, Kind, Step


@dataclass(frozen=True, slots=True)
class Mover:
    """A call that moved something: `net.to(DEVICE)`."""

    text: str
    site: Site


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the path to a stray: an object, and the step from it."""

    owner: Any
    step: Step

    @property
    def name(self) -> str:
        """The name of the owner's class."""
        return tree.class_name(self.owner)


def links_of(path: Found) -> list[Link]:
    """A path, link by link."""
    return [Link(owner, step) for owner, step in zip(path.owners, path.steps, strict=True)]


class Case:
    """A stray and its circumstances. Alive only while a post-mortem runs."""

    def __init__(self, scene: Scene, stray: Stray, origin: Origin | None) -> None:
        self.scene = scene
        self.stray = stray
        self.origin = origin

    # -- in short

    @property
    def complaint(self) -> Complaint:
        return self.scene.message.complaint

    @property
    def name(self) -> str:
        return self.stray.name

    @property
    def device(self) -> str:
        return self.stray.device or "another device"

    @property
    def expected(self) -> str:
        return self.stray.expected or "the device"

    @property
    def on_host(self) -> bool:
        """Whether the stray is on the CPU and should be on an accelerator."""
        return self.stray.device == "cpu" and self.stray.expected not in (None, "cpu")

    # -- what holds it

    @cached_property
    def path(self) -> Found | None:
        """The path to the stray from something that lives longer than a local: the stray's own, else one that is found.

        Where every link is registered, a path from further out may show the one that is not.
        """
        path = self._nearest_path()
        if path is None or not path.owners or not tree.is_module(path.owners[0]):
            return path
        if any(step.kind is Kind.ATTRIBUTE for step in path.steps):
            return path
        wider = self._holder(path.owners[0])
        if wider is None or not any(
            step.kind is Kind.ATTRIBUTE and tree.is_module(owner)
            for owner, step in zip(wider.owners, wider.steps, strict=True)
        ):
            return path
        return path.within(wider)

    @cached_property
    def whole(self) -> Found | None:
        """The path from the outermost module that holds the stray's, also where every link of it is registered."""
        path = self.path
        for _ in range(3):
            if path is None or not path.owners:
                break
            wider = self._holder(path.owners[0])
            if (
                wider is None
                or not tree.is_module(wider.owners[0])
                or any(owner is path.owners[0] for owner in wider.owners)
            ):
                break
            path = path.within(wider)
        return path

    def _nearest_path(self) -> Found | None:
        own = self.stray.found
        if own is not None and own.steps and _lives(own, self.stray.frame):
            return own
        if self.stray.value is MISSING:
            return own if own is not None and own.steps else None
        roots_root = own.owners[0] if own is not None and own.steps else self.stray.value
        better = self._holder(roots_root)
        if better is None:
            return own if own is not None and own.steps else None
        if own is None or not own.steps:
            return better
        return own.within(better)

    def _holder(self, target: Any) -> Found | None:
        """Something named that holds an object, by the object's identity or its storage."""
        storage = facts_of(target).storage if is_operand(target) else None
        for frame in self.scene.frames[:6]:
            if frame.code.co_name == "<module>" and "get_ipython" in frame.names:
                continue  # a notebook's names hold the whole notebook
            roots = [
                (name, value) for name, value in frame.names.items() if value is not target and name not in NOTEBOOK
            ]
            roots.sort(key=lambda pair: pair[0] != "self")
            for found in tree.search(roots, most=4_000, deadline=self.scene.deadline):
                if not found.steps:
                    continue
                if found.value is target or (
                    storage is not None and tree.is_tensor(found.value) and facts_of(found.value).storage == storage
                ):
                    return found
        return None

    @cached_property
    def links(self) -> list[Link]:
        """The path, link by link; empty where the stray hangs in nothing."""
        return [] if self.path is None else links_of(self.path)

    @property
    def path_text(self) -> str:
        return self.path.text if self.path is not None else self.name

    @property
    def held_by(self) -> str | None:
        """The path, where it says more than the name does: "self._cos" for `cos`."""
        if self.path is None or self.path.text == self.name or not self.path.steps:
            return None
        return self.path.text

    def first_link(self, kind: Kind, owner_is: Any = tree.is_module) -> int | None:
        """The first link of a kind whose owner is a module (or else), by position."""
        for position, link in enumerate(self.links):
            if link.step.kind is kind and owner_is(link.owner):
                return position
        return None

    @property
    def plain_attribute(self) -> Link | None:
        """The plain attribute of a module behind which `Module.to` does not look, or None."""
        position = self.first_link(Kind.ATTRIBUTE)
        return None if position is None else self.links[position]

    @property
    def module(self) -> Any:
        """The innermost module on the path, or None."""
        owners = [link.owner for link in self.links if tree.is_module(link.owner)]
        return owners[-1] if owners else None

    def text_up_to(self, link: Link) -> str:
        """The path up to and with a link."""
        assert self.path is not None
        position = self.links.index(link)
        return self.path.prefix(position + 1)

    # -- who made it

    @property
    def making(self) -> ast.AST | None:
        """The expression that made it."""
        return self.origin.node if self.origin is not None else None

    @property
    def maker(self) -> Function | None:
        """The function in which it was made."""
        return self.origin.function if self.origin is not None else None

    @property
    def maker_name(self) -> str | None:
        if self.origin is None:
            return None
        return self.origin.site.function

    @property
    def making_text(self) -> str | None:
        """The expression that made it, as written."""
        if self.origin is None or not isinstance(self.origin.node, ast.expr):
            return None
        return shortened(self.origin.source.text(self.origin.node))

    @property
    def made_at_start(self) -> bool:
        """Whether it was made in a constructor, or at the top of a file."""
        name = self.maker_name
        return name in ("__init__", "__post_init__", "<module>", None)

    @cached_property
    def statement(self) -> ast.stmt | None:
        """The statement that made it."""
        node: ast.AST | None = self.making
        while node is not None and not isinstance(node, ast.stmt):
            assert self.origin is not None
            node = self.origin.source.parent(node)
        return node

    @property
    def statement_value(self) -> str | None:
        """What that statement assigns, as written."""
        if self.origin is None or not isinstance(self.statement, ast.Assign | ast.AnnAssign):
            return None
        return None if self.statement.value is None else " ".join(self.origin.source.text(self.statement.value).split())

    @cached_property
    def factory(self) -> ast.Call | None:
        """The torch factory without `device=` that the making expression starts from, or None."""
        return None if self.making is None else factory_in(self.making)

    def with_device(self, call: ast.Call, device: str) -> str:
        """The expression that made the stray, with `device=` added to the factory call in it, as code."""
        assert self.origin is not None
        made = self._call_with_device(call, device)
        if isinstance(self.making, ast.expr) and self.making is not call:
            whole = " ".join(self.origin.source.text(self.making).split())
            alone = " ".join(self.origin.source.text(call).split())
            if whole.count(alone) == 1 and len(whole) <= 160:
                return whole.replace(alone, made)
        return made

    def _call_with_device(self, call: ast.Call, device: str) -> str:
        assert self.origin is not None
        text = " ".join(self.origin.source.text(call).split())
        if not text.endswith(")"):
            return text
        inside = text[:-1].rstrip()
        comma = "" if inside.endswith(("(", ",")) else ", "
        return f"{inside}{comma}{' ' if inside.endswith(',') else ''}device={device})"

    # -- what did move

    @cached_property
    def mover(self) -> Mover | None:
        """The call that moved what belongs with the stray, and passed the stray by."""
        return self._recorded_mover() or self._written_mover()

    def _recorded_mover(self) -> Mover | None:
        """In a rehearsal: the line that moved a parameter or buffer of the same module, or of one around it."""
        modules = [link.owner for link in reversed(self.links) if tree.is_module(link.owner)]
        roots = [[("", module)] for module in modules] + [list(frame.names.items()) for frame in self.scene.frames]
        for root in roots:
            for found in tree.search(root, most=1_500, deadline=self.scene.deadline):
                if not found.steps or found.steps[-1].kind not in (Kind.PARAMETER, Kind.BUFFER):
                    continue
                if facts_of(found.value).device != self.stray.expected:
                    continue
                origin = origin_of_value(found.value, self.scene)
                if origin is None:
                    return None  # no rehearsal: nothing was recorded
                if moves(origin.node):
                    return Mover(receiver_of(origin.node, origin.source), origin.site)
        return None

    def _written_mover(self) -> Mover | None:
        """From the source: a call in a frame that is still running, which moved a module."""
        for frame in self.scene.frames:
            for call in frame.source.calls(frame.function, *MOVES[:-1]):
                if frame.source.function_of(call) is not frame.function or call.lineno > frame.line:
                    continue
                assert isinstance(call.func, ast.Attribute)
                moved = frame.value(call.func.value)
                if moved is MISSING:
                    parent = frame.source.parent(call)
                    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
                    moved = frame.value(target) if isinstance(target, ast.Name | ast.Attribute) else MISSING
                if moved is not MISSING and tree.is_module(moved):
                    return Mover(receiver_of(call, frame.source), Site(frame.file, call.lineno, frame.code.co_name))
        for link in self.links:
            if not tree.is_module(link.owner):
                continue
            for source, cls in class_sources(link.owner):
                for call in source.calls(cls, *MOVES[:-1]):
                    if (
                        isinstance(call.func, ast.Attribute)
                        and isinstance(call.func.value, ast.Name)
                        and call.func.value.id == "self"
                    ):
                        return Mover(source.text(call), Site(source.file, call.lineno, cls.name))
        return None

    @property
    def passed_by(self) -> str:
        """The clause "net.to(DEVICE) at line 28 moved the rest", or what can be said instead."""
        if self.mover is None:
            return "Module.to"
        return f"{self.mover.text} ({self.where(self.mover.site)})"

    def where(self, site: Site) -> str:
        """A line in a sentence: "line 28", or "train.py:28" in another file than the failure's."""
        return f"line {site.line}" if site.file == self.scene.here.file else site.short

    # -- how this program writes its device

    @cached_property
    def beside(self) -> str | None:
        """A tensor of the failing expression that is where the stray should be: its name."""
        for node, value in self.scene.leaves():
            if is_operand(value) and tree.is_tensor(value) and facts_of(value).device == self.stray.expected:
                text = self.scene.here.source.text(node)
                if text != self.name and len(text) <= 40:
                    return text
        return None

    @cached_property
    def device_variable(self) -> str | None:
        """A variable of the program that holds the device: "DEVICE", "device", "self.device"."""
        wanted = self.stray.expected
        if wanted is None:
            return None
        names = {wanted, wanted.partition(":")[0]} if not wanted.endswith(tuple("123456789")) else {wanted}
        for frame in self.scene.frames:
            for name, value in [*frame.names.items(), *globals_of(frame)]:
                if name.isidentifier() and _is_device(value, names):
                    return name
            owner = frame.names.get("self", MISSING)
            if owner is not MISSING:
                for name, value in tree.instance_dict(owner).items():
                    if _is_device(value, names):
                        return f"self.{name}"
        return None

    @property
    def device_text(self) -> str:
        """The device as code: the program's own variable, else the device of a tensor beside the stray, else a string."""
        if self.device_variable is not None:
            return self.device_variable
        if self.beside is not None:
            return f"{self.beside}.device"
        return self.device_named

    @property
    def device_named(self) -> str:
        """The device as code for another line than the one that failed: the program's own variable, else a string."""
        return self.device_variable or f'"{(self.stray.expected or "cuda").removesuffix(":0")}"'

    @property
    def device_beside(self) -> str:
        """The same, where a function should follow its input: the tensor beside the stray comes first, then an argument."""
        if self.beside is not None:
            return f"{self.beside}.device"
        frame = self.scene.here
        for name, value in frame.names.items():
            if not name.isidentifier() or frame.kind_of(name) != "argument" or not tree.is_tensor(value):
                continue
            if facts_of(value).device == self.stray.expected and name != self.name:
                return f"{name}.device"
        return self.device_text

    @cached_property
    def device_in_maker(self) -> str | None:
        """How the function that made the stray can say the device: by what it can see. None where it sees nothing of it."""
        maker, source = self.maker, self.origin.source if self.origin is not None else None
        if maker is self.scene.here.function:
            return self.device_beside
        known = self.device_variable
        if maker is None or source is None:
            return known if known is not None and known.isidentifier() else None
        arguments = [a.arg for a in (*maker.args.posonlyargs, *maker.args.args, *maker.args.kwonlyargs)]
        for node in ast.walk(maker):
            if (
                (
                    isinstance(node, ast.Attribute)
                    and node.attr in ("shape", "device", "dtype")
                    and isinstance(node.value, ast.Name)
                )
                and node.value.id in arguments
                and node.value.id != "self"
            ):
                return f"{node.value.id}.device"
        if "device" in arguments:
            return "device"
        if known is not None and (source.of_name(known, None) or (known.startswith("self.") and "self" in arguments)):
            return known
        return None

    def attribute_value(self, link: Link) -> str:
        """What the class of a link's owner sets that attribute to, as written; "..." where that cannot be told."""
        for source, cls in class_sources(link.owner):
            for found in source.of_attribute(cls, str(link.step.key)):
                plain = found.how == "=" and getattr(found.function, "name", "") == "__init__"
                if (
                    plain
                    and found.value is not None
                    and not (isinstance(found.value, ast.Constant) and found.value.value is None)
                ):
                    return " ".join(source.text(found.value).split())
        return "..."

    def moved(self, text: str, device: str | None = None) -> str:
        """An expression moved, as code: `x.to(device)`, `(a / b).to(device)`."""
        moved = f"{atom(text)}.to({device or self.device_beside})"
        if text == self.name and self.in_place:
            return f"{text} = {moved}, before this line"
        return moved

    @cached_property
    def in_place(self) -> bool:
        """Whether the failing line writes into the stray: moved within the line, a copy would be written into."""
        node, text = self.scene.node, self.scene.here.source.text
        if isinstance(node, ast.AugAssign):
            return text(node.target) == self.name
        if isinstance(node, ast.Assign):
            return any(isinstance(t, ast.Subscript) and text(t.value) == self.name for t in node.targets)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return text(node.value) == self.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return (
                node.func.attr.endswith("_")
                and not node.func.attr.startswith("_")
                and text(node.func.value) == self.name
            )
        return False

    # -- looking around

    def functions(self) -> Iterator[tuple[Source, Function | None, Frame]]:
        """The functions that are still running, innermost first."""
        for frame in self.scene.frames:
            yield frame.source, frame.function, frame


def _lives(found: Found, frame: Frame) -> bool:
    """Whether a path starts at something that is more than a local."""
    return (
        found.root == "self"
        or frame.kind_of(found.root.partition(".")[0]) in ("global", "closure")
        or len(found.steps) > 1
    )


def _is_device(value: Any, names: set[str]) -> bool:
    if type(value) is str:
        return value in names
    if type(value).__module__ in ("torch", "torch._C") or type(value).__name__ == "device":
        return type(value).__name__ == "device" and str(value) in names
    return False
