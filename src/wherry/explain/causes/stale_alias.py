"""stale-alias: another name of a buffer or a parameter, taken before the module moved.

Why      `Module.to` gives the module new buffers, and new data to its parameters. Whatever else pointed at the old tensors
         (a list, a dictionary, `.data`, a view) still does, although everything registered has moved.
Fix      Look it up when it is used: `getattr(self, name)`, `self.weight`, instead of keeping a second reference.
Source   torch/nn/modules/module.py, `Module._apply`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.source import Assignment, Source
from wherry.explain.tensors import facts_of
from wherry.explain.written import class_sources
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    link = case.plain_attribute
    if link is not None:
        for source, cls in class_sources(link.owner):
            for found in source.of_attribute(cls, str(link.step.key)):
                registered = _registered(source, found, case)
                if registered is not None:
                    return _advice(case, case.text_up_to(link), registered, found.node.lineno)
    attribute = _of_object(case)
    if attribute is not None:
        return attribute
    if link is None and case.stray.frame.kind_of(case.name.partition("[")[0].partition(".")[0]) in (
        "local",
        "closure",
        "global",
        "argument",
    ):
        found = _taken(case)
        if found is not None:
            return _advice(case, case.name, *found)
    return None


def _of_object(case: Case) -> Advice | None:
    """The attribute of an object that is no module, set to `layer.weight.data`."""
    for link in case.links:
        if link.step.kind is not Kind.ATTRIBUTE or tree.is_module(link.owner):
            continue
        for source, cls in class_sources(link.owner):
            for found in source.of_attribute(cls, str(link.step.key)):
                node = found.value
                if isinstance(node, ast.Attribute) and (node.attr == "data" or node.attr in ("weight", "bias")):
                    text = source.text(node.value if node.attr == "data" else node)
                    return _advice(case, case.text_up_to(link), text, found.node.lineno)
    return None


def _advice(case: Case, text: str, registered: str, line: int) -> Advice:
    return Advice(
        f"{text} is a second name (line {line}) for what is registered as {registered}. {case.passed_by} put a new tensor in the "
        f"place of the old one: {registered} is on {case.expected}, and {text} still means the old one on {case.device}.",
        f"Look it up when it is used, {registered}, instead of keeping a second reference.",
    )


def _registered(source: Source, found: Assignment, case: Case) -> str | None:
    """The registered tensor that an assignment makes a second name for."""
    if found.value is None or found.how in ("register_buffer", "register_parameter"):
        return None
    for name in _names_in(found.value):
        if found.function is None:
            continue
        for call in source.calls(found.function, "register_buffer", "register_parameter"):
            if len(call.args) > 1 and isinstance(call.args[1], ast.Name) and call.args[1].id == name:
                key = call.args[0]
                return f"self.{key.value}" if isinstance(key, ast.Constant) else f"getattr(self, {source.text(key)})"
    return next((text for text in _registered_in(found.value, source, case)), None)


def _names_in(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Dict):
        yield from (v.id for v in node.values if isinstance(v, ast.Name))
    elif isinstance(node, ast.List | ast.Tuple):
        yield from (v.id for v in node.elts if isinstance(v, ast.Name))


def _registered_in(node: ast.expr, source: Source, case: Case) -> Iterator[str]:
    """Parts of an expression such as `self.embed.weight` that are registered, and where the stray should be."""
    owner = next((link.owner for link in case.links if tree.is_module(link.owner)), None)
    if owner is None:
        return
    for part in ast.walk(node):
        if not isinstance(part, ast.Attribute):
            continue
        names = source.text(part).split(".")
        if names[0] != "self" or not all(name.isidentifier() for name in names):
            continue
        value, kinds, reached = owner, list[Kind](), "self"
        for name in names[1:]:
            inner = tree.attribute(value, name)
            kinds += [step.kind for step, child in tree.children(value) if step.key == name and child is inner]
            value, reached = inner, f"{reached}.{name}"
            if value is tree.MISSING or tree.is_tensor(value):
                break
        if (
            value is tree.MISSING
            or not tree.is_tensor(value)
            or not kinds
            or kinds[-1] not in (Kind.PARAMETER, Kind.BUFFER)
        ):
            continue
        if facts_of(value).device == case.stray.expected and not _computes(node, part, source):
            yield reached


def _computes(node: ast.expr, part: ast.expr, source: Source) -> bool:
    """Whether more is done with a part than looking at the same bytes."""
    while part is not node:
        parent = source.parent(part)
        if not isinstance(parent, ast.expr):
            return False
        if isinstance(parent, ast.BinOp | ast.Compare):
            return True
        if isinstance(parent, ast.Call) and part in parent.args:
            return True
        part = parent
    return False


def _taken(case: Case) -> tuple[str, int] | None:
    """A local that was taken from a module before the module moved: `w = net.weight.data`."""
    frame = case.stray.frame
    root = case.name.partition("[")[0].partition(".")[0]
    function = frame.function if frame.kind_of(root) in ("local", "argument") else None
    for source_frame in case.scene.frames:
        for found in source_frame.source.of_name(
            root, source_frame.function if source_frame is not frame else function
        ):
            if found.value is None:
                continue
            for part in ast.walk(found.value):
                if not isinstance(part, ast.Attribute):
                    continue
                value = source_frame.value(part)
                if (
                    value is not tree.MISSING
                    and tree.is_tensor(value)
                    and facts_of(value).device == case.stray.expected
                    and not _computes(found.value, part, source_frame.source)
                    and _same_size(value, case)
                ):
                    return source_frame.source.text(part), found.node.lineno
    return None


def _same_size(value: object, case: Case) -> bool:
    return case.stray.facts is not None and facts_of(value).dtype == case.stray.facts.dtype


CAUSE = Cause(
    "stale-alias",
    28,
    recognise,
    (
        Example(
            """
                class Bank(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        kernel = torch.ones(3)
                        self.register_buffer('kernel', kernel)
                        self.table = {3: kernel}
                    def forward(self, x):
                        return x * self.table[3]
                Bank().to(DEVICE)(torch.ones(3, device=DEVICE))
            """,
            "self.table[3]",
            "kernel = torch",
        ),
        Example(
            """
                net = torch.nn.Linear(2, 2)
                weight = net.weight.data
                net.to(DEVICE)
                print(torch.ones(2, device=DEVICE) @ weight)
            """,
            "weight",
            "net = torch",
        ),
    ),
)
