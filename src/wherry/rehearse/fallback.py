"""Operators for which a device has no kernel: they raise what it raises, or go through the CPU and are counted.

`of(overload)` answers which overloads are to be asked about when they are called, since some device has no kernel for them;
no others pay for it. Which those are, `wherry.ops.catalog` knows; the words and the environment variable are the backend's
(`Kernels`).

What happens on a real device is `at::native::cpu_fallback` (aten/src/ATen/native/CPUFallback.cpp): every tensor argument is
copied to the host, `out=` ones included, the CPU's kernel runs, what was written to is copied back, and so is the result, to
the device of the first operand. That is what is counted here: nothing is copied, since all values are on the CPU anyway.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wherry import backends, callsite
from wherry.backends import Backend
from wherry.dispatch import OpOverload, runner, signature
from wherry.errors import BadVariable
from wherry.ops import catalog
from wherry.ops.catalog import LACKING, Standing, Support
from wherry.rehearse import dtypes
from wherry.rehearse.absence import exception
from wherry.rehearse.records import CPU, HOST, PINNED, Operand, mark_all, operands_of
from wherry.rehearse.running import running_call
from wherry.rehearse.wording import no_kernel
from wherry.storage import Place

if TYPE_CHECKING:
    from wherry.rehearse.mode import Mode
    from wherry.rehearse.session import Rehearsal

_Special = Callable[["Mode", OpOverload, tuple[Any, ...], dict[str, Any]], Any]

_environment = dict(os.environ)
"""As it was when torch came: a program that sets a variable later sets it too late, on a real device as well.

This module is imported right after torch under `wherry run`, and by the first `wherry.rehearse` elsewhere.
"""


def is_asked_for(backend: Backend, environ: Mapping[str, str] = _environment) -> bool:
    """Whether the environment variable of a backend sends operators without a kernel through the CPU.

    Raises:
        BadVariable: It holds no number. torch reads one with `std::stoi`, and an import of it then ends the process.
    """
    name = None if backend.kernels is None else backend.kernels.variable
    value = None if name is None else environ.get(name)
    if name is None or value is None:
        return False
    number = re.match(r"\s*[+-]?\d+", value)
    if number is None:
        raise BadVariable(name, value, backend.title)
    return int(number.group()) != 0


class Call(NamedTuple):
    """A call of an operator on a device that has no kernel for it."""

    session: Rehearsal
    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    support: Support
    here: Place  # where the kernel would have run


def of(func: OpOverload, otherwise: _Special | None) -> _Special | None:
    """The function an overload goes through, if some device that can be rehearsed has no kernel for it.

    Args:
        func: The overload.
        otherwise: The function it goes through where there is a kernel; None for the common path.
    """
    name = signature(func).name
    able = [backend for backend in backends.all() if backend.virtual is not None]
    lacking = {b: found for b in able if (found := catalog.support(name, b)).standing in LACKING}
    apart = {
        b for b in able if any(catalog.support(part, b).standing in LACKING for part in catalog.MADE_OF.get(name, ()))
    }
    if not lacking and not apart:
        return otherwise

    def run(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        backend = mode.session.backend
        if backend in apart:
            return mode.decompose(func, args, kwargs)
        support = lacking.get(backend)
        here = None if support is None else _place(mode, func, args, kwargs)
        if support is not None and here is not None:
            return _go_through(mode, Call(mode.session, func, args, kwargs, support, here), otherwise)
        if otherwise is None:
            return mode.meet(func, args, kwargs)
        return otherwise(mode, func, args, kwargs)

    return run


def _place(mode: Mode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Place | None:
    """The device whose kernel a call would need: that of the first operand on one, or the device it asks for."""
    for operand in mode.settle(tuple(operands_of(func, args, kwargs))):
        if operand.place.index is not None:
            return operand.place
    position = signature(func).device
    if position is None:
        return None
    device = args[position] if position < len(args) else kwargs.get("device")
    if device is None or device.type != mode.session.backend.device_type or not mode.session.places:
        return None
    return mode.session.resolve(device)


def _go_through(mode: Mode, call: Call, otherwise: _Special | None) -> Any:
    """Raise what a device raises for an operator without a kernel, or run it as the fallback does.

    Raises:
        NotImplementedError: as the backend words it.
    """
    session, func, args, kwargs, support, here = call
    named = _named(call)
    operands = tuple(operands_of(func, args, kwargs))
    _check_one_device(session.backend, operands, named)
    _warn(session, named)
    together = all(operand.place is here for operand in operands)
    out = otherwise(mode, func, args, kwargs) if otherwise and together else _on_host(func, args, kwargs)
    mark_all(out, here)
    mode.ambient = here
    makes_out = named == support.named != support.operator and not any(each.output for each in operands)
    frame = callsite.user_frame(sys._getframe(1))
    there = [operand for operand in operands if operand.place.index is not None]
    session.fallbacks.add(named, crossing(there, out, makes_out=makes_out), frame)
    return out


def _named(call: Call) -> str:
    """The operator that a fallback names.

    Raises:
        NotImplementedError: there is none: as the backend words it.
    """
    session, func, args, kwargs, support, here = call
    sig = signature(func)
    if session.narrow and sig.device is not None:  # its result is made before it is filled
        dtypes.check_new(session, sig.name, dtypes.asked(args, kwargs), here)
    whole = catalog.whole(sig.name, lambda: running_call().name)
    if whole is not None:
        outer = catalog.support(whole, session.backend)
        if outer.standing is Standing.FALLS_BACK:
            return outer.named
    if support.standing is Standing.MISSING and not (session.fallback and _has_a_way(session.backend)):
        raise missing(call)
    return support.named


def _has_a_way(backend: Backend) -> bool:
    """Whether a device can be told to send operators through the CPU; where it cannot, nothing helps."""
    return backend.kernels is not None and backend.kernels.variable is not None


def _on_host(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the CPU's kernel."""
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": CPU, "pin_memory": False}
    return runner(func)(*args, **kwargs)


def crossing(operands: Iterable[Operand], out: Any, *, makes_out: bool = False) -> int:
    """How many bytes cross for a fallback: operands to the host, and back what came of them.

    Args:
        operands: Of the call, those on the device.
        out: What it returned.
        makes_out: Whether an `out=` was made for it, which is copied to the host as well.
    """
    inward = sum(_nbytes(operand.tensor) for operand in operands)
    results = out if isinstance(out, tuple | list) else (out,)
    outward = sum(_nbytes(each) for each in results if isinstance(each, Tensor))
    return inward + outward * (2 if makes_out else 1)


def missing(call: Call) -> Exception:
    """What a device raises for an operator that it has no kernel for."""
    kernels = call.session.backend.kernels
    assert kernels is not None
    words = kernels.error_by_namespace.get(call.func.namespace) or kernels.error
    if words is None:
        return no_kernel(call.func, kernels.key, call.args, call.kwargs)
    kind, text = words
    return exception(kind, text.format(operator=call.support.named, commit=torch.version.git_version))


def _check_one_device(backend: Backend, operands: Iterable[Operand], named: str) -> None:
    known = {} if backend.kernels is None else backend.kernels.one_device
    devices = [HOST.device if operand.place is PINNED else operand.place.device for operand in operands]
    for text, span in known.items():
        for device in devices:
            words = {"operator": named.partition(".")[0], "first": devices[0]}
            said = text.format(second=device, **words)
            if span.holds(torch.__version__) and said != text.format(second=devices[0], **words):
                raise RuntimeError(said)


def _warn(session: Rehearsal, named: str) -> None:
    """Once in a process, whichever operator it is: TORCH_WARN_ONCE stands in the function that all go through."""
    kernels = session.backend.kernels
    if kernels is None or kernels.warning is None or session.warned:
        return
    session.warned = True
    warnings.warn(kernels.warning.format(operator=named), UserWarning, stacklevel=callsite.stacklevel())


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
