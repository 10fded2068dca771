"""Gradients: what autograd itself checks about devices, which it cannot see here.

To the C++ engine every tensor is on the CPU, so the checks it makes on real devices are made here: of a gradient that is
assigned (`python_variable.cpp`), handed to backward, returned by a custom Function (`validate_outputs` in engine.cpp), or
replaced by a hook.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from wherry.dispatch import is_batched_gradient, is_transforming
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.impersonate.tensor import TensorProperty, relocate, settled
from wherry.rehearse.impersonate.unobserved import quietly
from wherry.rehearse.mode import Mode
from wherry.rehearse.records import FLOATING, move_record, residence, write
from wherry.rehearse.surface import thread
from wherry.rehearse.wording import type_name

_Base = torch._C.TensorBase
_get_grad = _Base.grad.__get__  # type: ignore[attr-defined]
_set_grad = _Base.grad.__set__  # type: ignore[attr-defined]
_Node = torch.autograd.function.BackwardCFunction
_apply_forward = torch.autograd.Function.__dict__["apply"]


def get_grad(self: Tensor) -> Tensor | None:
    gradient = _get_grad(self)
    if gradient is not None and thread.mode is not None and gradient.layout is torch.strided:
        place, found = residence(self), residence(gradient)
        if found is FLOATING:
            move_record(gradient, place)
        elif (
            place is not found and gradient.dim() == 0
        ):  # the engine itself moves a 0-dim gradient (engine.cpp, validate_outputs)
            record = gradient.untyped_storage()._wherry_record  # type: ignore[attr-defined]
            write(gradient.untyped_storage(), place, record[1], record[2])
    return gradient


def set_grad(self: Tensor, gradient: Tensor | None) -> None:
    mode = thread.mode
    if mode is not None and isinstance(gradient, Tensor):
        place, found = settled(mode, self), settled(mode, gradient)
        if place.type != found.type:
            raise RuntimeError(
                f"attempting to assign a gradient with device type '{found.type}' to a tensor with device type "
                f"'{place.type}'. Please ensure that the gradient and the tensor are on the same device"
            )
        if place is not found and place.index is not None and found.index is not None:
            # The original streams the indices as characters.
            text = (
                f"attempting to assign a gradient located on device with index '{chr(found.index)}' to a tensor located on "
                f"device with index '{chr(place.index)}'. Please ensure that the gradient and the tensor are on the same device"
            )
            raise RuntimeError(text.partition("\0")[0])  # and C++ ends the text at the character of index 0
    _set_grad(self, gradient)


def del_grad(self: Tensor) -> None:
    _set_grad(self, None)


def _engine_run_backward(original: Any) -> Any:
    @functools.wraps(original)
    def run(t_outputs: Any, grad_tensors: Any, *args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is None or any(isinstance(g, Tensor) and is_batched_gradient(g) for g in grad_tensors):
            return original(t_outputs, grad_tensors, *args, **kwargs)
        for number, (output, gradient) in enumerate(zip(t_outputs, grad_tensors, strict=False)):
            if isinstance(output, Tensor) and isinstance(gradient, Tensor):
                _validate(mode, number, gradient, settled(mode, output), "")
        if not mode.session.asks_who_listens or is_transforming():
            return original(t_outputs, grad_tensors, *args, **kwargs)
        with quietly(t_outputs):
            return original(t_outputs, grad_tensors, *args, **kwargs)

    return run


def _validate(mode: Mode, number: int, gradient: Tensor, expected: Any, prefix: str) -> Tensor:
    """The engine's check of one gradient. A 0-dim one is moved."""
    found = settled(mode, gradient)
    if found is expected or found.index is expected.index is None:
        return gradient
    if gradient.dim() == 0:
        return relocate(mode, gradient, expected)
    raise RuntimeError(
        f"{prefix}invalid gradient at index {number} - expected device {expected.name} but got {found.name}"
    )


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Function.apply: note on its node where its inputs are, for the check of what its backward returns."""
    out = _apply_forward.__get__(None, cls)(*args, **kwargs)
    mode = thread.mode
    if mode is not None:
        first = (
            out
            if isinstance(out, Tensor)
            else next((o for o in out if isinstance(o, Tensor)), None)
            if isinstance(out, tuple)
            else None
        )
        node = None if first is None else first.grad_fn
        if isinstance(node, _Node):
            node._wherry_inputs = [
                settled(mode, a) if isinstance(a, Tensor) and a.requires_grad else None for a in args
            ]
    return out


def _checked(original: Any) -> Any:
    @functools.wraps(original)
    def apply(self: Any, *args: Any) -> Any:
        gradients = original(self, *args)
        mode = thread.mode
        inputs = self.__dict__.get("_wherry_inputs") if mode is not None else None
        if inputs is None:
            return gradients
        alone = not isinstance(gradients, tuple)
        prefix = f"Function {type(self).__name__} returned an "
        checked = [
            g if expected is None or not isinstance(g, Tensor) else _validate(mode, number, g, expected, prefix)
            for number, (g, expected) in enumerate(
                zip((gradients,) if alone else gradients, itertools.chain(inputs, itertools.repeat(None)), strict=False)
            )
        ]
        return checked[0] if alone else tuple(checked)

    return apply


_register_hook = Tensor.register_hook


def register_hook(self: Tensor, hook: Any) -> Any:
    """Tensor.register_hook: a hook may not return a gradient of another type (python_hook.cpp, check_result)."""
    mode = thread.mode
    if mode is None:
        return _register_hook(self, hook)

    @functools.wraps(hook, updated=())
    def checked(gradient: Tensor) -> Any:
        out = hook(gradient)
        mode = thread.mode
        if mode is not None and isinstance(out, Tensor):
            before, after = settled(mode, gradient), settled(mode, out)
            if before is not after:
                backend = mode.session.backend
                name = getattr(hook, "__name__", type(hook).__name__)
                raise RuntimeError(
                    f"hook '{name}' has changed the type of value (was {type_name(gradient.dtype, before, backend)} got "
                    f"{type_name(out.dtype, after, backend)})"
                )
        return out

    return _register_hook(self, checked)


def patches() -> Iterator[Patch]:
    """Names of torch.Tensor and torch.autograd."""
    yield Patch(Tensor, "grad", TensorProperty("grad", get_grad, set_grad, del_grad, _Base.grad.__doc__))
    yield Patch(Tensor, "register_hook", functools.wraps(_register_hook)(register_hook))
    for module in (torch.autograd, torch.autograd.graph):
        yield Patch(module, "_engine_run_backward", _engine_run_backward(module._engine_run_backward))
    yield Patch(
        torch.autograd.Function,
        "apply",
        classmethod(functools.wraps(getattr(_apply_forward, "__func__", _apply_forward))(_apply)),
    )
    for name in ("apply", "apply_boxed"):
        if name in vars(_Node):
            yield Patch(_Node, name, _checked(vars(_Node)[name]))
