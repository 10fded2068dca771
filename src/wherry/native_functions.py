"""What PyTorch says of its own operators, read from the `native_functions.yaml` that ships with torch.

Three questions are answered from it. Which dispatch keys have a kernel for an overload, and what is it made of where a
key has none (`ops`)? And what is generated around a kernel (`rehearse`): for CUDA-like and XPU-like keys, torchgen wraps
one in a check that its tensors are on one device, unless the entry says `device_check: NoCheck`. Whether there is a
check, in which order it looks, and the name of the wrapper that its message shows all follow from the entry
(torchgen/gen.py: `device_guard`; torchgen/dest/register_dispatch_key.py: `gen_device_check`).

The file is read when the first of these is asked; most programs never do. An entry is parsed when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

_ENTRY = re.compile(r"^- func: ([\w:]+(?:\.\w+)?)\(", re.MULTILINE)
_FIELD = re.compile(r"^  (\w+): *([^#\n]*?) *(?:#[^\n]*)?$", re.MULTILINE)
_KERNEL = re.compile(r"^    ([\w, ]+): *(\S+)", re.MULTILINE)
_ITERATOR = re.compile(r"device_check: NoCheck\s+# TensorIterator|which leverages TensorIterator")
_STRUCTURED_KEYS = ("CPU", "CUDA", "MPS", "XPU", "MTIA", "Meta")
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


@dataclass(frozen=True, slots=True)
class Native:
    """What an entry says of one overload.

    Attributes:
        keys: the dispatch keys with a kernel of their own, its delegate's included.
        composite: the alias key of the kernel that makes it of other operators where a backend has none; None if there is
            no such kernel.
        delegate: the overload ("mm.out") that a structured one is computed by, or None.
        autogen: overloads that torchgen makes of it and that have no entry: its `out=` and functional variants.
        checked: whether a same-device check is generated around it.
        iterator: whether its kernel is built on TensorIterator, which has a check of its own.
        structured: whether the wrapper is named the structured way (overload last).
        resizes: whether it is structured without being an iterator, so that its code checks the device of its `out`.
    """

    keys: frozenset[str]
    composite: str | None
    delegate: str | None
    autogen: tuple[str, ...]
    checked: bool
    iterator: bool
    structured: bool
    resizes: bool


@lru_cache(maxsize=1)
def _entries() -> dict[str, str]:
    """Overload name ("add.Tensor") -> the text of its entry."""
    import torchgen

    text = (Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml").read_text(encoding="utf-8")
    starts = [(match.group(1), match.start()) for match in _ENTRY.finditer(text)]
    ends = [start for _, start in starts[1:]] + [len(text)]
    return {name: text[start:end] for (name, start), end in zip(starts, ends, strict=True)}


def _fields(entry: str) -> dict[str, str]:
    return {name: value for name, value in _FIELD.findall(entry) if name != "dispatch"}


def _kernels(entry: str) -> frozenset[str]:
    _, _, dispatch = entry.partition("\n  dispatch:\n")
    body = (
        dispatch.split("\n  ", 1)[0]
        if not dispatch.startswith("    ")
        else re.split(r"\n  (?=\w)", dispatch, maxsplit=1)[0]
    )
    keys = {key.strip() for names, _ in _KERNEL.findall(body) for key in names.split(",")}
    if "ufunc_inner_loop" in entry:
        keys |= {"CPU", "CUDA"}
    return frozenset(keys)


@cache
def native(name: str) -> Native | None:
    """The entry of an overload ("add.Tensor"), or None where there is none (generated variants, other libraries)."""
    entry = _entries().get(name)
    if entry is None:
        return None
    fields = _fields(entry)
    keys = _kernels(entry)
    inherits = fields.get("structured_inherits", "")
    delegate = fields.get("structured_delegate")
    # Without a dispatch table an entry is implicitly composite; a structured one calls the overload it delegates to.
    made_of = next((key for key in _COMPOSITE if key in keys), None)
    if not keys and "\n  dispatch: {}" not in entry:
        made_of = _COMPOSITE[0]
    if delegate:
        target = _entries()[delegate]
        keys |= {key for key in _kernels(target) if key in _STRUCTURED_KEYS}
        inherits = inherits or _fields(target).get("structured_inherits", "")
        made_of = _COMPOSITE[2]
    structured = bool(delegate) or fields.get("structured") == "True"
    return Native(
        keys=keys,
        composite=made_of,
        delegate=delegate,
        autogen=tuple(name.strip() for name in fields.get("autogen", "").split(",") if name.strip()),
        checked=fields.get("device_check", "ExactSame") != "NoCheck",
        iterator=inherits == "TensorIteratorBase" or bool(_ITERATOR.search(entry)),
        structured=structured,
        resizes=structured and inherits != "TensorIteratorBase",
    )


def names() -> Iterator[str]:
    """Every overload that has an entry ("add.Tensor"), in the order of the file."""
    return iter(_entries())


@lru_cache(maxsize=1)
def generated() -> dict[str, str]:
    """The overloads that torchgen makes and that have no entry -> the one they call (torchgen/native_function_generation.py)."""
    found: dict[str, str] = {}
    for base, entry in _entries().items():
        if "autogen" in entry:
            for name in _autogen(base):
                found.setdefault(name, base)  # the functional one comes before the in-place one
    return found


def _autogen(base: str) -> tuple[str, ...]:
    entry = native(base)
    return () if entry is None else entry.autogen


def wrapper_name(name: str, *, key: str, structured: bool, has_out: bool) -> str:
    """The method that the message of a generated check names: "wrapper_CUDA_addmm", "wrapper_CUDA_mm_out_out"."""
    base, _, overload = name.partition(".")
    if has_out:
        base += "_out"
    if structured and key in ("CUDA", "XPU"):
        return f"wrapper_{key}_{base}_{overload}" if overload else f"wrapper_{key}_{base}"
    return f"wrapper_{key}_{overload}_{base}"
