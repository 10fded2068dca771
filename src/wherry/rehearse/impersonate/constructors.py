"""Constructors that allocate below the dispatcher, where the mode cannot see the device they are given.

`torch.tensor(data, device="cuda")` builds on the host and copies in C++ code that asks for a real device. So they are
run for the host, and what they built is then written down at the place that was asked for. Ordinary factories
(`torch.zeros`) need nothing: the mode sees them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._device import DeviceContext, _device_constructors  # 2.6; test_training, test_ordinals

from wherry.dispatch import function_modes
from wherry.rehearse.absence import absent
from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.impersonate.tensor import relocate, settled
from wherry.rehearse.mode import Mode
from wherry.rehearse.randomness import VirtualGenerator, device_of
from wherry.rehearse.records import move_all, residence
from wherry.rehearse.surface import thread
from wherry.rehearse.wording import one_device
from wherry.storage import Place

_RealGenerator = torch.Generator


def _default_device() -> torch.device | None:
    """The default device without making a tensor to ask, as `torch.get_default_device` does for one without an index."""
    for function_mode in reversed(function_modes()):
        if isinstance(function_mode, DeviceContext):
            return function_mode.device
    return None


def _asked(mode: Mode, kwargs: dict[str, Any]) -> Place:
    """Where a constructor is to build: its device argument, which `_wrap` has filled in from a default device, or the host."""
    device = kwargs.get("device")
    return mode.session.resolve("cpu" if device is None else device)


def _built_at(place: Place, build: Callable[[], Tensor]) -> Tensor:
    """Build on the host, then say that it was built at `place`."""
    out = build()
    if residence(out) is not place:  # also one that C++ cast on the way, which is floating
        move_all(out, place)
    return out


def _is_meta(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and not isinstance(device, int) and torch.device(device).type == "meta"


def tensor(original: Any, mode: Mode, data: Any, **kwargs: Any) -> Tensor:
    """torch.tensor: a copy; without a device argument, of a tensor, on the device of that tensor."""
    if _is_meta(kwargs):
        return original(data, **kwargs)
    own = kwargs.get("device") is None and isinstance(data, Tensor)
    place = settled(mode, data) if own else _asked(mode, kwargs)
    pinned = kwargs.pop("pin_memory", False)
    out = original(data, **{**kwargs, "device": "cpu"})
    if residence(out) is not place:
        if isinstance(data, Tensor):
            mode.session.moved(settled(mode, data), place, out)
        move_all(out, place)
    return out.pin_memory() if pinned else out


def as_tensor(original: Any, mode: Mode, data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """torch.as_tensor: the tensor itself where it is already what was asked for."""
    if isinstance(data, Tensor):
        out = data if dtype is None else data.to(dtype)
        return out if device is None else out.to(device)
    if _is_meta({"device": device}):
        return original(data, dtype=dtype, device=device)
    place = _asked(mode, {"device": device})
    return _built_at(place, lambda: original(data, dtype=dtype, device="cpu"))


def asarray(original: Any, mode: Mode, obj: Any, **kwargs: Any) -> Tensor:
    """torch.asarray: shares memory where it can, which a movement cannot."""
    device = kwargs.pop("device", None)
    copy = kwargs.get("copy")
    if _is_meta({"device": device}):
        return original(obj, **kwargs, device=device)
    if not isinstance(obj, Tensor) or device is None:
        place = _asked(mode, {"device": device}) if not isinstance(obj, Tensor) else residence(obj)
        out = original(obj, **kwargs, device="cpu")
        return out if out is obj else _built_at(place, lambda: out)
    place = mode.session.resolve(device)
    if place is settled(mode, obj):
        return original(obj, **kwargs)
    if copy is False:
        raise ValueError(f"can't alias tensor from device '{obj.device}' to '{place.name}'.")
    return relocate(mode, original(obj, **kwargs), place)


def range_(original: Any, mode: Mode, *args: Any, **kwargs: Any) -> Tensor:
    """torch.range, whose binding guards the device before it dispatches (autograd/python_torch_functions_manual.cpp)."""
    if _is_meta(kwargs) or kwargs.get("out") is not None:
        return original(*args, **kwargs)
    place = _asked(mode, kwargs)
    return _built_at(place, lambda: original(*args, **{**kwargs, "device": "cpu"}))


def sparse(original: Any, mode: Mode, *args: Any, **kwargs: Any) -> Tensor:
    """torch.sparse_*_tensor: without a device argument, where its values are."""
    device = kwargs.pop("device", None)
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    if device is not None:
        if _is_meta({"device": device}):
            return original(*args, **kwargs, device=device)
        place = mode.session.resolve(device)
        args = tuple(a.to(place.device) if isinstance(a, Tensor) else a for a in args)
        kwargs = {k: v.to(place.device) if isinstance(v, Tensor) else v for k, v in kwargs.items()}
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        if not tensors:
            return _built_at(place, lambda: original(*args, **kwargs, device="cpu"))
        return original(*args, **kwargs)
    if tensors:
        _parts_together(mode, original.__name__, tensors)
        return original(*args, **kwargs)
    return _built_at(_asked(mode, {}), lambda: original(*args, **kwargs, device="cpu"))


def _parts_together(mode: Mode, name: str, parts: list[Tensor]) -> None:
    """Indices and values of a sparse tensor reside together (SparseTensor.cpp; SparseCsrTensor.cpp)."""
    places = [settled(mode, part) for part in parts]
    if len(set(places)) < 2:
        return
    prefix = mode.session.backend.wording.check_prefix or "MPS"
    if name == "sparse_coo_tensor":
        method = f"wrapper_Sparse{prefix}___sparse_coo_tensor_with_dims_and_tensors"
        raise one_device("values", places[1], places[0], method)
    plain = "ccol_indices" if "csc" in name or "bsc" in name else "crow_indices"
    raise RuntimeError(f"Values and {plain} need to be on the same device.")


def nested(original: Any, mode: Mode, tensors: Any, *args: Any, **kwargs: Any) -> Tensor:
    """torch.nested.nested_tensor: moves its parts, then joins them."""
    device = kwargs.pop("device", None)
    if device is not None:
        tensors = [torch.as_tensor(t).to(device) for t in tensors]
    return original(tensors, *args, **kwargs)


_CONSTRUCTORS: dict[str, Any] = {
    "tensor": tensor,
    "as_tensor": as_tensor,
    "asarray": asarray,
    "range": range_,
    **dict.fromkeys(
        (
            "sparse_coo_tensor",
            "sparse_csr_tensor",
            "sparse_csc_tensor",
            "sparse_bsr_tensor",
            "sparse_bsc_tensor",
            "sparse_compressed_tensor",
        ),
        sparse,
    ),
}


def _wrap(original: Any, virtual: Any) -> Any:
    defaults = original in _device_constructors()

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is None:
            return original(*args, **kwargs)
        if defaults and kwargs.get("device") is None and (default := _default_device()) is not None:
            # It is an argument to these: heeded for data that is a tensor already, and maybe meta. Given here, so that
            # what is run for the host is not given it again.
            kwargs["device"] = default
            with torch._C.DisableTorchFunction():
                return virtual(original, mode, *args, **kwargs)
        return virtual(original, mode, *args, **kwargs)

    return stand_in


class _GeneratorType(type):
    """Lets `isinstance(g, torch.Generator)` stay true for every generator."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RealGenerator)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _RealGenerator)

    def __call__(cls, device: Any = "cpu") -> Any:
        mode = thread.mode
        if mode is None or torch.device(device).type == "cpu":
            return _RealGenerator(device)
        wanted = torch.device(device)
        if wanted.type != mode.session.backend.device_type:
            raise _no_generator(wanted.type)
        return VirtualGenerator(mode.session.resolve(wanted))


class Generator(metaclass=_GeneratorType):
    """Stands in for torch.Generator, whose constructor would ask for a real device."""


Generator.__module__, Generator.__doc__ = "torch", _RealGenerator.__doc__


def _no_generator(device_type: str) -> Exception:
    """What a build without the device says (aten/src/ATen/detail/*HooksInterface.h)."""
    if device_type == "meta":
        return RuntimeError("META device type not an accelerator.")
    if device_type == "mps":
        return RuntimeError("Cannot execute getNewGenerator() without MPS backend.")
    if device_type == "cuda":
        return RuntimeError(
            "Cannot get CUDA generator without ATen_cuda library. PyTorch splits its backend into two shared libraries: a CPU "
            "library and a CUDA library; this error has occurred because you are trying to use some CUDA functionality, but "
            "the CUDA library has not been loaded by the dynamic linker for some reason.  The CUDA library MUST be loaded, "
            "EVEN IF you don't directly use any symbols from the CUDA library! One common culprit is a lack of "
            "-Wl,--no-as-needed in your link arguments; many dynamic linkers will delete dynamic library dependencies if you "
            "don't depend on any of their symbols.  You can check if this has occurred by using ldd on your binary to see if "
            "there is a dependency on *_cuda.so library."
        )
    if device_type == "xpu":
        return RuntimeError("Cannot get XPU generator without ATen_xpu library.")
    return absent(device_type)


def _parse_to(original: Any) -> Any:
    """`Module.to` parses its arguments in C++, which refuses an index where no accelerator is built in."""

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        mode = thread.mode
        if mode is not None:
            if args and isinstance(args[0], int) and not isinstance(args[0], bool):
                args = (mode.session.resolve(args[0], moving=True).device, *args[1:])
            elif args and isinstance(args[0], Tensor):  # C++ would read its real device
                args = (args[0].device, args[0].dtype, *args[1:])
            elif isinstance(like := kwargs.get("tensor"), Tensor):
                kwargs = {
                    **{k: v for k, v in kwargs.items() if k != "tensor"},
                    "device": like.device,
                    "dtype": like.dtype,
                }
        return original(*args, **kwargs)

    return stand_in


def captured() -> Iterator[Patch]:
    """Modules of the program that took a constructor by name before the rehearsal began: `from torch import tensor`.

    To be asked while the stand-ins are in place, each time: modules come and go.
    """
    originals = {name: vars(torch)[name].__wrapped__ for name in _CONSTRUCTORS}
    ours = originals.keys()
    for path, module in list(sys.modules.items()):
        if path.startswith(("torch.", "sympy.")):  # most of what is loaded
            continue
        names = getattr(module, "__dict__", None)
        if type(names) is not dict or ours.isdisjoint(names):
            continue
        for name in ours & names.keys():
            if names[name] is originals[name] and not names.get("__name__", "torch").startswith("torch"):
                yield Patch(module, name, vars(torch)[name])


_make_wrapper = torch._C.TensorBase._make_wrapper_subclass


def _make_wrapper_subclass(cls: Any, *args: Any, **kwargs: Any) -> Tensor:
    """The C++ tensor of a wrapper subclass stays on the CPU: autograd in C++ may not meet a device that is not there.

    Where it resides is where its parts do, which is what the program sees.
    """

    def on_host(value: Any) -> Any:
        virtual = isinstance(value, torch.device) and value.type not in ("cpu", "meta")
        return torch.device("cpu") if virtual else value

    if thread.mode is not None:
        if isinstance(kwargs.get("device"), str | int):
            kwargs["device"] = thread.mode.session.resolve(kwargs["device"]).device
        args = tuple(on_host(value) for value in args)
        kwargs = {name: on_host(value) for name, value in kwargs.items()}
    return _make_wrapper(cls, *args, **kwargs)


def patches() -> Iterator[Patch]:
    """Constructors of torch, and torch.Generator."""
    for name, virtual in _CONSTRUCTORS.items():
        yield Patch(torch, name, _wrap(getattr(torch, name), virtual))
    for name in ("nested_tensor", "as_nested_tensor"):
        yield Patch(torch.nested, name, _wrap(getattr(torch.nested, name), nested))
    yield Patch(Tensor, "_make_wrapper_subclass", staticmethod(_make_wrapper_subclass))
    yield Patch(torch, "Generator", Generator)
    yield Patch(torch._C._nn, "_parse_to", _parse_to(torch._C._nn._parse_to))


__all__ = ["device_of", "patches"]
