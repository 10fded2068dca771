"""One tensor or array as plain facts: device, dtype, shape, and the bytes that stand behind it.

Nothing of the user's runs. Subclasses are read below `__torch_function__`. Those that have a `__torch_dispatch__` of their own
(DTensor, quantized weights) may answer any question with code, so what is asked are the tensors that they hold; of PyTorch's
own subclasses, whose code is no user's, the shape is asked too.

Bytes are those of storages, each with a key by which it is counted once. A tensor on the meta device and a fake one hold none;
what they would take is said beside it.

In a rehearsal a tensor is where its storage's record says, as `.device` does.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from wherry import tree
from wherry.storage import ATTRIBUTE, OPAQUE_ATTRIBUTE


class Facts(NamedTuple):
    """What an inventory knows of a tensor or an array. A tuple, since there may be a million.

    Attributes:
        device: "cuda:0", "cpu", "meta"; "numpy" or "mlx" for arrays; "?" where it cannot be had.
        dtype: "float32"; "?" where it cannot be had.
        shape: Its sizes, or None where it has none that can be read.
        storages: The key and the bytes of each storage behind it.
        would_be: The bytes that it would take where it now holds none, on meta or fake.
        requires_grad: Whether autograd records it.
        note: What is odd about it: "fake", "uninitialized", "sparse_coo", the name of its class; or "".
    """

    device: str
    dtype: str
    shape: tuple[int, ...] | None
    storages: tuple[tuple[Any, int], ...]
    would_be: int = 0
    requires_grad: bool = False
    note: str = ""

    @property
    def nbytes(self) -> int:
        """The bytes of all storages behind it."""
        return sum(nbytes for _, nbytes in self.storages)


def measure(obj: Any) -> Facts:
    """The facts of a tensor or an array."""
    if not tree.is_tensor(obj):
        return _array(obj)
    from wherry.dispatch import without_functions

    with without_functions():
        return measure_below(obj)


def measure_below(obj: Any) -> Facts:
    """The same, where the code of subclasses is switched off already. 3 us for a plain tensor."""
    import torch

    if type(obj) is torch.Tensor or type(obj) is torch.nn.Parameter:
        return _tensor(obj)
    if not tree.is_tensor(obj):
        return _array(obj)
    from wherry.dispatch import FakeTensor

    if tree.is_a(obj, FakeTensor):
        return _fake(obj)
    if tree.class_attribute(obj, "__torch_dispatch__") is not _own_dispatch():
        return _wrapper(obj)
    return _tensor(obj)


def gradient_below(tensor: Any) -> Any:
    """The gradient that a leaf of autograd has gathered, or None. The caller has switched the code of subclasses off."""
    return _get(tensor, "grad") if _get(tensor, "is_leaf") else None


def _own_dispatch() -> Any:
    """What a tensor has as `__torch_dispatch__` that does not answer for itself."""
    import torch

    return vars(torch.Tensor)["__torch_dispatch__"]


def _get(tensor: Any, name: str) -> Any:
    """An attribute as C++ has it, below names that a rehearsal replaces. Subclasses' code is switched off already."""
    getter = _GETTERS.get(name)
    if getter is None:
        import torch

        getter = _GETTERS[name] = vars(torch.Tensor.__base__)[name].__get__
    return getter(tensor)


_GETTERS: dict[str, Any] = {}


@cache
def _text(value: Any) -> str:
    """A device or a dtype as text."""
    return str(value).removeprefix("torch.")


def _is_rehearsing() -> bool:
    import torch

    return ATTRIBUTE in vars(torch.UntypedStorage)


def _tensor(tensor: Any) -> Facts:
    device, dtype = _text(_get(tensor, "device")), _text(_get(tensor, "dtype"))
    grad = bool(_get(tensor, "requires_grad"))
    note = ""
    if tree.class_name(tensor).startswith("Uninit") and tree.has_class(tensor, *_UNINITIALIZED):
        return Facts(_device_of(tensor, device), dtype, None, (), 0, grad, "uninitialized")
    try:
        shape: tuple[int, ...] | None = tuple(map(int, _get(tensor, "shape")))
    except Exception:  # noqa: BLE001 - a nested tensor has none; a symbolic size asks whoever made it
        shape = None
    try:
        storage, key = _storage(tensor)
        nbytes = storage.nbytes()
    except (NotImplementedError, RuntimeError):
        return _without_storage(tensor, device, dtype, shape, requires_grad=grad)
    record = storage.__dict__.get(ATTRIBUTE)
    if record is not None and _is_rehearsing():
        device = record[0].name
    if shape is None:
        note = "nested"
    elif _get(tensor, "is_quantized"):
        note = "quantized"
    if device == "meta":
        return Facts(device, dtype, shape, ((key, 0),), nbytes, grad, note)
    return Facts(device, dtype, shape, ((key, nbytes),), 0, grad, note)


_UNINITIALIZED = ("torch.nn.parameter", "UninitializedTensorMixin")


def _storage(tensor: Any) -> tuple[Any, int]:
    from wherry.dispatch import storage_below

    return storage_below(tensor)


def _device_of(tensor: Any, real: str) -> str:
    """Where a tensor is whose parts cannot be had."""
    place = tree.instance_dict(tensor).get(OPAQUE_ATTRIBUTE)
    return real if place is None or not _is_rehearsing() else place.name


_PARTS = {
    "sparse_coo": ("_indices", "_values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


def _without_storage(
    tensor: Any, device: str, dtype: str, shape: tuple[int, ...] | None, *, requires_grad: bool
) -> Facts:
    """A sparse tensor is its indices and its values; MKLDNN and functorch do not show what they hold."""
    import torch

    from wherry.dispatch import without_modes

    layout = _text(_get(tensor, "layout"))
    parts: list[Facts] = []
    with without_modes():
        for name in _PARTS.get(layout, ()):
            try:
                parts.append(_tensor(vars(torch.Tensor.__base__)[name](tensor)))
            except (NotImplementedError, RuntimeError):
                continue
    if parts:
        storages = tuple(storage for part in parts for storage in part.storages)
        return Facts(
            parts[-1].device, dtype, shape, storages, sum(part.would_be for part in parts), requires_grad, layout
        )
    nbytes = 0
    if shape is not None and layout != "strided":
        nbytes = _get(tensor, "dtype").itemsize
        for size in shape:
            nbytes *= size
    note = layout.removeprefix("_") if layout != "strided" else "has no storage"
    return Facts(_device_of(tensor, device), dtype, shape, ((id(tensor), nbytes),), 0, requires_grad, note)


def _fake(tensor: Any) -> Facts:
    from wherry.dispatch import storage_below

    own = tree.instance_dict(tensor)
    device = str(own.get("_fake_device", own.get("fake_device", "?")))  # renamed between 2.6 and 2.13
    dtype = _text(_get(tensor, "dtype"))
    shape, would_be, key = None, 0, id(tensor)
    with suppress(Exception):  # torch's own machinery of symbols raises what it likes
        # Sizes may be symbols, of which the shape environment of torch.compile knows more.
        shape = tuple(int(n) if type(n) is int else str(n) for n in _get(tensor, "shape"))
        storage, key = storage_below(tensor)
        would_be = storage.nbytes()
    fixed = shape if shape is not None and all(type(n) is int for n in shape) else None
    would_be = would_be if type(would_be) is int else 0
    return Facts(device, dtype, fixed, ((key, 0),), would_be, bool(_get(tensor, "requires_grad")), "fake")  # type: ignore[arg-type]


def _wrapper(tensor: Any) -> Facts:
    """A tensor that is made of others: where they are, and what they hold."""
    note = tree.class_name(tensor)
    parts = [measure(part) for part in _held(tensor)]
    dtype = _text(_get(tensor, "dtype"))
    grad = bool(_get(tensor, "requires_grad"))
    shape = None
    if tree.module_of(type(tensor)).startswith("torch."):
        try:
            shape = tuple(int(n) for n in _get(tensor, "shape"))
        except Exception:  # noqa: BLE001 - a jagged size is a symbol that is no number
            shape = None
    if not parts:
        return Facts("?", dtype, shape, (), 0, grad, note)
    devices = list(dict.fromkeys(part.device for part in parts))
    storages = tuple(storage for part in parts for storage in part.storages)
    return Facts(devices[0], dtype, shape, storages, sum(part.would_be for part in parts), grad, note)


def _held(tensor: Any) -> Iterator[Any]:
    """The tensors in the attributes and slots of a tensor, and one level deeper in its containers."""
    values = list(tree.instance_dict(tensor).values())
    for cls in tree.mro(tensor):
        for member in list(tree.own_dict(cls).values()):
            if type(member) is types.MemberDescriptorType:
                try:
                    values.append(member.__get__(tensor))
                except (AttributeError, TypeError):
                    continue
    seen: set[int] = {id(tensor)}
    for value in values:
        inner = [value]
        if type(value) is list or type(value) is tuple:
            inner = list(value)
        elif type(value) is dict:
            inner = list(value.values())
        for one in inner:
            if tree.is_tensor(one) and id(one) not in seen:
                seen.add(id(one))
                yield one


def _array(array: Any) -> Facts:
    """An array of NumPy, whose views share the memory of their base, or of MLX."""
    cls = next(cls for cls in tree.mro(array) if (tree.module_of(cls), tree.name_of(cls)) in _ARRAYS)
    library = _ARRAYS[tree.module_of(cls), tree.name_of(cls)]

    def get(name: str, of: Any = array) -> Any:
        return getattr(cls, name).__get__(of)

    shape = tuple(int(n) for n in get("shape"))
    dtype = str(get("dtype")).removeprefix("mlx.core.")
    if library == "mlx":
        return Facts(library, dtype, shape, ((id(array), int(get("nbytes"))),))
    base = array
    while (further := get("base", base)) is not None and tree.is_a(further, cls):
        base = further
    if further is not None and tree.is_tensor(further):  # made by Tensor.numpy(): the memory is the tensor's
        return Facts(library, dtype, shape, measure(further).storages)
    return Facts(library, dtype, shape, ((id(base), int(get("nbytes", base))),))


_ARRAYS = {("numpy", "ndarray"): "numpy", ("mlx.core", "array"): "mlx"}
