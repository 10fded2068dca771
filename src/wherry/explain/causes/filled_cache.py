"""filled-cache: a table was computed once and kept, and the device is not part of what it is kept by.

Why      A cache that is filled on the CPU (by a warm-up, a shape check, an `lru_cache` without a device among its arguments)
         goes on answering with CPU tensors after the model has moved.
Fix      Make the device part of the test or of the key; or make the table a buffer, registered with `persistent=False`.
Source   PyTorch documentation, "torch.nn.Module.register_buffer".
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import factory_in
from wherry.explain.source import Function, Source
from wherry.tree import MISSING


def recognise(case: Case) -> Advice | None:
    return _of_function(case) or _of_attribute(case) or _of_dictionary(case)


def _of_function(case: Case) -> Advice | None:
    """A function that is decorated to remember what it returned."""
    node = case.stray.node
    call = node if isinstance(node, ast.Call) else None
    if call is None and case.making is not None and isinstance(case.making, ast.Call):
        call = case.making
    function = case.maker
    frame = case.stray.frame
    cached = call is not None and _remembers(frame.value(call.func))
    if not cached and not (isinstance(function, ast.FunctionDef) and _is_cached(function)):
        return None
    name = frame.source.text(call.func) if call is not None and cached else getattr(function, "name", "the function")
    use = case.name if cached else f"{name}(...)"
    if (
        isinstance(function, ast.FunctionDef)
        and not cached
        and "cached_property" in ast.dump(function.decorator_list[0])
    ):
        return Advice(
            f"{case.name} is a cached property: it was computed once, on {case.device}, and that same "
            "tensor is handed out ever after; "
            "it is no buffer, so no .to moves it.",
            f"Move what it hands out: {case.moved(case.name)}. Or make it a plain property, or a buffer.",
        )
    return Advice(
        f"{name} is cached: it made its table on {case.device} once and hands out that same tensor ever "
        "after; the table is part of "
        "no module, so no .to moves it.",
        f"Move what it returns to where it is used: {use}.to({case.device_beside}). Or give {name} a "
        "device argument, which then is part of the key.",
    )


def _remembers(value: object) -> bool:
    return (
        value is not MISSING and type(value).__name__ == "_lru_cache_wrapper" and type(value).__module__ == "functools"
    )


def _is_cached(function: ast.FunctionDef) -> bool:
    return any("cache" in ast.dump(decorator).lower() for decorator in function.decorator_list)


def _of_attribute(case: Case) -> Advice | None:
    """An attribute that a method fills when it is first needed."""
    link = case.plain_attribute
    if link is None or case.maker is None or case.made_at_start or case.origin is None or case.statement is None:
        return None
    attribute = str(link.step.key)
    test = _guard(case.origin.source, case.statement, case.maker, attribute)
    if test is None:
        return None
    text = case.text_up_to(link)
    source = case.origin.source
    if case.factory is not None:
        return _always_there(case, text)
    written = " ".join(source.text(test).split())
    followed = _follows(case)
    device = case.device_beside
    if followed:
        extra = f"{text}.device != {device}"
        fix = f"Ask for the device as well: if {written} or {extra}:"
    else:
        fix = f"Ask for the device as well, if {written} or {text}.device != {device}:, and build it there with device={device}."
    return Advice(
        f"{text} is a cache: it was filled in {case.maker_name}() (line {case.origin.site.line}) when "
        f"everything was on {case.device}, "
        f"before {case.passed_by}. It is a plain attribute, which Module.to does not move, and the test "
        f"`{written}` does not look at the device.",
        fix,
    )


def _guard(source: Source, statement: ast.AST, function: Function, attribute: str) -> ast.expr | None:
    """The test around the statement that fills the cache."""
    node: ast.AST | None = statement
    while node is not None and node is not function:
        node = source.parent(node)
        if isinstance(node, ast.If) and any(
            isinstance(n, ast.Attribute) and n.attr == attribute for n in ast.walk(node.test)
        ):
            return node.test
    # Or an early return above it.
    for other in ast.walk(function):
        if isinstance(other, ast.If) and any(
            isinstance(n, ast.Attribute) and n.attr == attribute for n in ast.walk(other.test)
        ):
            return other.test
    return None


def _follows(case: Case) -> bool:
    """Whether the table is made on the device of its input, so that it is right when it is made again."""
    return case.making is not None and factory_in(case.making) is None


def _of_dictionary(case: Case) -> Advice | None:
    """A dictionary that is filled by key."""
    inside = next((position for position, link in enumerate(case.links) if tree.is_a(link.owner, dict)), None)
    if inside is None or case.origin is None or case.maker is None or case.maker_name in ("__init__", "__post_init__"):
        if case.stray.found is None or case.origin is None or not isinstance(case.maker, ast.FunctionDef):
            return None
        return _returned_from_dictionary(case)
    if not _fills_by_key(case.origin.source, case.maker):
        return None
    assert case.path is not None
    text = case.path.prefix(inside)
    return _dictionary_advice(case, text)


def _returned_from_dictionary(case: Case) -> Advice | None:
    assert case.origin is not None
    assert isinstance(case.maker, ast.FunctionDef)
    name = _fills_by_key(case.origin.source, case.maker)
    return None if name is None else _dictionary_advice(case, name)


def _always_there(case: Case, text: str) -> Advice:
    """A cache whose table is made without `device=`, and so on the CPU whenever it is made."""
    assert case.factory is not None
    assert case.origin is not None
    made = " ".join(case.origin.source.text(case.factory).split())
    device = case.device_in_maker
    fix = (
        f"Make it where the data is, {case.with_device(case.factory, device)}"
        if device
        else f"Move it: {case.moved(case.name)}"
    )
    return Advice(
        f"{text} is a cache that {case.maker_name}() fills with {made} (line {case.origin.site.line}), without device=: it is on "
        f"{case.device} wherever the rest is, and no .to moves it.",
        f"{fix}, and fill it anew when the device differs.",
    )


def _dictionary_advice(case: Case, text: str) -> Advice:
    if case.factory is not None:
        return _always_there(case, text)
    return Advice(
        f"{text} is a cache that {case.maker_name}() filled while it worked on {case.device}; its key does "
        "not name the device, so "
        f"the same tensor is handed out for {case.expected}.",
        f"Make the device part of the key, {text}[(key, {case.device_beside})], or move what comes out: {case.moved(case.name)}",
    )


def _fills_by_key(source: Source, function: Function) -> str | None:
    """The dictionary that a function looks into before it puts something there."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            holder = source.text(node.targets[0].value)
            for test in ast.walk(function):
                if (isinstance(test, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in test.ops)
                        and source.text(test.comparators[0]) == holder):  # fmt: skip
                    return holder
                if (
                    isinstance(test, ast.Call)
                    and isinstance(test.func, ast.Attribute)
                    and test.func.attr == "get"
                    and source.text(test.func.value) == holder
                ):
                    return holder
                if isinstance(test, ast.Try) and any(
                    "KeyError" in ast.dump(h.type or ast.Pass()) for h in test.handlers
                ):
                    return holder
    return None


CAUSE = Cause(
    "filled-cache",
    34,
    recognise,
    (
        Example(
            """
                class Rope(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.lin = torch.nn.Linear(4, 4)
                        self.table = None
                    def forward(self, x):
                        if self.table is None:
                            self.table = torch.arange(4, device=x.device)
                        return self.lin(x) * self.table
                net = Rope()
                net(torch.ones(4))
                net.to(DEVICE)
                net(torch.ones(4, device=DEVICE))
            """,
            "self.table",
            "self.table = torch",
        ),
        Example(
            """
                import functools
                @functools.lru_cache
                def levels(n):
                    return torch.linspace(0, 1, n)
                x = torch.ones(4, device=DEVICE)
                print(x * levels(4))
            """,
            "levels(4)",
            "return torch",
        ),
        Example(
            """
                CACHE = {}
                def window(n):
                    if n not in CACHE:
                        CACHE[n] = torch.hann_window(n)
                    return CACHE[n]
                x = torch.ones(4, device=DEVICE)
                w = window(4)
                print(x * w)
            """,
            "w",
            "CACHE[n] = ",
        ),
    ),
)
