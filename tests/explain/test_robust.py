"""A post-mortem never raises, never takes long, never hides the error, and never runs the program's code.

A thousand frames, broken in ways that real ones are: sources that are missing, changed, or in no known encoding; code made
by exec; objects that answer every question by raising, recursing or lying; containers that are huge or hold themselves.
"""

from __future__ import annotations

import linecache
import random
import sys
import time
import traceback
from collections import UserDict, deque
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import wherry

ran: list[str] = []
"""Names of the methods below that somebody called."""


class Raising:
    """Everything a class can be asked raises, and leaves a trace."""

    def __getattr__(self, name: str) -> Any:
        ran.append(f"__getattr__ {name}")
        raise RuntimeError(name)

    def __repr__(self) -> str:
        ran.append("__repr__")
        raise RuntimeError("repr")

    def __eq__(self, other: object) -> bool:
        ran.append("__eq__")
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        return 7

    def __bool__(self) -> bool:
        ran.append("__bool__")
        raise RuntimeError("bool")

    def __len__(self) -> int:
        ran.append("__len__")
        raise RuntimeError("len")

    def __iter__(self) -> Any:
        ran.append("__iter__")
        raise RuntimeError("iter")

    @property
    def tensor(self) -> Any:
        ran.append("tensor")
        raise RuntimeError("property")


class Recursing:
    def __getattr__(self, name: str) -> Any:
        ran.append("Recursing")
        return getattr(self, name + "_")


class Lying:
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        ran.append("__class__")
        return torch.Tensor

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        ran.append("__dict__")
        return {"weight": torch.ones(2)}


class Asking(type):
    def __instancecheck__(cls, instance: object) -> bool:
        ran.append("__instancecheck__")
        raise RuntimeError("instancecheck")

    def __getattribute__(cls, name: str) -> Any:
        if not name.startswith("__"):
            ran.append(f"metaclass {name}")
        return super().__getattribute__(name)


class Metaclassed(metaclass=Asking):
    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = torch.ones(2)


class LyingList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        ran.append("list.__iter__")
        raise RuntimeError("iter")

    def __len__(self) -> int:
        ran.append("list.__len__")
        return 10**9

    def __getitem__(self, key: Any) -> Any:
        ran.append("list.__getitem__")
        raise RuntimeError("getitem")


class LyingDict(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        ran.append("dict.items")
        raise RuntimeError("items")

    def __missing__(self, key: Any) -> Any:
        ran.append("dict.__missing__")
        raise RuntimeError("missing")


class Spied(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ran.append("__torch_function__")
        return super().__torch_function__(func, types, args, kwargs or {})


def cyclic() -> Any:
    ring: list[Any] = [torch.ones(1)]
    ring.append({"ring": ring, "self": ring})
    return ring


def deep() -> Any:
    nest: Any = torch.ones(2)
    for _ in range(5_000):
        nest = [nest]
    return nest


def bare_module() -> Any:
    made = nn.Linear(2, 2)
    del made.__dict__["_buffers"]
    made.__dict__["_parameters"] = None
    return made


ODDITIES: dict[str, Any] = {
    "raising": Raising,
    "recursing": Recursing,
    "lying": Lying,
    "metaclassed": Metaclassed,
    "lying list": lambda: LyingList([torch.ones(2), Raising()]),
    "lying dict": lambda: LyingDict(x=torch.ones(2)),
    "keys that raise": lambda: {Raising(): torch.ones(2), "x": 1},
    "user dict": lambda: UserDict({"x": torch.ones(2)}),
    "huge list": lambda: list(range(300_000)),
    "huge list of tensors": lambda: [torch.ones(1)] * 100_000,
    "huge dict": lambda: dict.fromkeys(range(200_000)),
    "cyclic": cyclic,
    "deep": deep,
    "deque": lambda: deque([torch.ones(1)] * 10),
    "bare module": bare_module,
    "big model": lambda: nn.Sequential(*[nn.Linear(1, 1) for _ in range(400)]),
    "optimizer": lambda: torch.optim.Adam(nn.Linear(2, 2).parameters()),
    "sparse": lambda: torch.ones(2, 2).to_sparse(),
    "meta": lambda: torch.ones(2, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "spied": lambda: torch.ones(2).as_subclass(Spied),
    "generator": lambda: (n for n in range(3)),
    "module": lambda: sys,
    "class": lambda: Raising,
    "none": lambda: None,
}

LINES = (
    "x * w",
    "torch.cat([x, w])",
    "x + odd.tensor + w",
    "x * odd['x'] + w",
    "x + (odd and w)",
    "F.linear(x, w)",
    "layer(x) + w",
    "[x + p for p in (w,)]",
    "(lambda y: y * w)(x)",
    "x.masked_fill_(w > 0, 1.0)",
    "x.__mul__(getattr(odd, 'nothing', w))",
    "torch.where(x > 0, w, x)",
    "x.mul_(w) if x is not None else odd",
)

PREFACE = "import torch\nimport torch.nn.functional as F\n"


def broken_frame(number: int, tmp_path: Path, odd: Any) -> BaseException:
    """An exception from a frame that was broken in one of many ways."""
    pick = random.Random(number)
    line = pick.choice(LINES)
    body = (
        "def fail(x, w, odd, layer):\n    "
        f"{'del odd' if 'odd' not in line and pick.random() < 0.2 else 'pass'}\n    return {line}\n"
    )
    text = PREFACE + body
    name = str(tmp_path / f"frame_{number}.py")
    how = pick.choice(
        ("here", "missing", "changed", "exec", "not utf-8", "truncated", "no newline", "folder", "null", "empty")
    )
    if how == "exec":
        name = "<string>"
    elif how == "folder":
        name = str(tmp_path)
    elif how == "null":
        Path(name).write_bytes(text.encode() + b"\0\0\0")
    elif how == "not utf-8":
        Path(name).write_bytes(("# caf\xe9\n" + text).encode("latin-1"))
    elif how == "changed":
        Path(name).write_text("x = 1\n" * pick.randint(0, 30), encoding="utf-8")
    elif how == "truncated":
        Path(name).write_text(text[: pick.randint(0, len(text))], encoding="utf-8")
    elif how == "empty":
        Path(name).write_text("", encoding="utf-8")
    elif how != "missing":
        Path(name).write_text(text.rstrip() if how == "no newline" else text, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "broken", "__file__": name, "odd_global": odd}
    exec(compile(text, name, "exec"), names)
    try:
        names["fail"](torch.ones(2, device="cuda"), torch.ones(2), odd, nn.Linear(2, 2).to("cuda"))
    except Exception as error:
        return error
    raise AssertionError(f"{line} was to fail")


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(20))
def test_a_thousand_broken_frames(batch: int, tmp_path: Path) -> None:
    slow: list[tuple[float, int]] = []
    with wherry.rehearse("cuda"):
        wherry.explain_exception(broken_frame(1000, tmp_path, None))  # what is imported on first use
        for number in range(batch * 50, batch * 50 + 50):
            kind = list(ODDITIES)[number % len(ODDITIES)]
            odd = ODDITIES[kind]()
            error = broken_frame(number, tmp_path, odd)
            before = traceback.format_exception(error)
            linecache.clearcache()
            ran.clear()

            begin = time.process_time()
            diagnosis = wherry.explain_exception(error)
            taken = time.process_time() - begin

            assert ran == [], f"{kind}: the program's code ran"
            assert traceback.format_exception(error) == before, kind
            assert diagnosis is None or str(diagnosis)
            if taken > 0.2:
                slow.append((taken, number))
    assert len(slow) <= 1, slow  # one may meet a pause of the machine


def test_the_same_frames_are_explained_when_nothing_is_broken(tmp_path: Path) -> None:
    """The twin: it is not silence that keeps the test above green."""
    with wherry.rehearse("cuda"):
        named = 0
        for number in range(40):
            diagnosis = wherry.explain_exception(broken_frame(number, tmp_path, None))
            named += diagnosis is not None and diagnosis.culprit is not None

    assert named > 15


def test_the_oddities_do_leave_a_trace() -> None:
    """The twin: whoever asked them would be noticed."""
    ran.clear()
    with pytest.raises(RuntimeError):
        _ = Raising().anything
    with pytest.raises(RuntimeError):
        repr(Raising())
    isinstance(Lying(), torch.Tensor)
    with pytest.raises(RuntimeError):
        list(LyingList([1]))

    assert len(ran) >= 4


def test_an_exception_whose_text_raises_is_left_alone() -> None:
    class Mute(RuntimeError):
        def __str__(self) -> str:
            ran.append("__str__")
            raise ValueError("no")

    ran.clear()
    try:
        raise Mute("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!")
    except Mute as error:
        wherry.explain_exception(error)

    assert ran == []


def test_chains_of_exceptions_that_hold_themselves_end() -> None:
    first, second = RuntimeError("one"), RuntimeError("two")
    first.__cause__, second.__cause__ = second, first

    assert wherry.explain_exception(first) is None
