"""torch.cuda.FloatTensor, torch.cuda.sparse.FloatTensor and their kin: types that name a dtype and a device.

In builds without a device their constructors refuse. Here they build on the current device, and `isinstance` and
`Tensor.type` know them; `torch.set_default_tensor_type` sets the default dtype and device.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from wherry.rehearse.impersonate.patches import Patch
from wherry.rehearse.state import state_of
from wherry.rehearse.surface import thread

if TYPE_CHECKING:
    from wherry.rehearse.session import Rehearsal

NAMES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")


def _build(session: Rehearsal, kind: str, *args: Any, sparse: bool = False) -> torch.Tensor:
    """What the legacy constructor does: sizes, or data; of a sparse type, indices and values."""
    dtype = getattr(torch, f"{kind}Tensor").dtype
    device = session.places[session.current_index].device
    if sparse:
        return torch.sparse_coo_tensor(*args, dtype=dtype, device=device)
    if len(args) == 1 and not isinstance(args[0], int | torch.Size):
        data = args[0]
        if isinstance(data, torch.Tensor):
            if data.device.type != device.type or data.dtype != dtype:
                raise TypeError(_mismatch(data, dtype, device))
            return data.alias() if hasattr(data, "alias") else data.view_as(data)
        return torch.tensor(data, dtype=dtype, device=device)
    sizes = args[0] if args and isinstance(args[0], torch.Size) else args
    return torch.empty(tuple(sizes), dtype=dtype, device=device)


def _options(dtype: torch.dtype, device: torch.device) -> str:
    name = {torch.float64: "double", torch.float16: "c10::Half", torch.int64: "long", torch.float32: "float"}.get(
        dtype, str(dtype).removeprefix("torch.")
    )
    return (
        f"TensorOptions(dtype={name}, device={device}, layout=Strided, requires_grad=false (default), "
        "pinned_memory=false (default), memory_format=(nullopt))"
    )


def _mismatch(data: torch.Tensor, dtype: torch.dtype, device: torch.device) -> str:
    wanted = torch.device(device.type)
    return f"expected {_options(dtype, wanted)} (got {_options(data.dtype, data.device)})"


class _Type(type):
    """The type of a stand-in for `torch.cuda.FloatTensor`."""

    kind: str
    device_type: str
    sparse: bool
    original: Any

    def _here(cls) -> Rehearsal | None:
        mode = thread.mode
        return mode.session if mode is not None and mode.session.backend.device_type == cls.device_type else None

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        session = cls._here()
        if session is None:
            return cls.original(*args, **kwargs)
        if not state_of(session).settings.setdefault("warned of tensor types", False):
            state_of(session).settings["warned of tensor types"] = True
            warnings.warn(
                f"The torch.{cls.device_type}.*DtypeTensor constructors are no longer recommended. It's best to use methods such "
                f"as torch.tensor(data, dtype=*, device='{cls.device_type}') to create tensors.",
                stacklevel=2,
            )
        return _build(session, cls.kind, *args, sparse=cls.sparse)

    def __instancecheck__(cls, instance: object) -> bool:
        if cls._here() is None:
            return isinstance(instance, cls.original)
        return isinstance(instance, torch.Tensor) and (
            instance.device.type == cls.device_type
            and instance.is_sparse == cls.sparse
            and instance.dtype is getattr(torch, f"{cls.kind}Tensor").dtype
        )

    def __getattr__(cls, name: str) -> Any:
        return getattr(type.__getattribute__(cls, "original"), name)

    def __repr__(cls) -> str:
        return repr(cls.original)


def _stand_in(kind: str, device_type: str, original: Any, *, sparse: bool) -> _Type:
    body = {"kind": kind, "device_type": device_type, "sparse": sparse, "original": original}
    body["__module__"] = original.__module__
    return _Type(f"{kind}Tensor", (), body)


def _set_default(original: Any) -> Any:
    @functools.wraps(original)
    def set_default_tensor_type(t: Any, /) -> None:
        mode = thread.mode
        name = t if isinstance(t, str) else f"{getattr(t, '__module__', '')}.{getattr(t, '__name__', '')}"
        prefix, _, kind = name.rpartition(".")
        if mode is None or prefix != f"torch.{mode.session.backend.device_type}":
            original(t)
            return
        torch.set_default_dtype(getattr(torch, kind).dtype)
        torch.set_default_device(mode.session.backend.device_type)

    return set_default_tensor_type


def patches() -> Iterator[Patch]:
    """The types of torch.cuda, and what makes one of them the default."""
    for module, sparse in ((torch.cuda, False), (torch.cuda.sparse, True)):
        for kind in NAMES:
            original = vars(module).get(f"{kind}Tensor")
            if original is not None:
                yield Patch(module, f"{kind}Tensor", _stand_in(kind, "cuda", original, sparse=sparse))
    yield Patch(torch, "set_default_tensor_type", _set_default(torch.set_default_tensor_type))
