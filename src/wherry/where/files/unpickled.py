"""The pickle in a checkpoint, read with stand-ins: no class of torch or of anybody is imported, and nothing is called.

A pickle is a program. This one may only name what `torch.load(weights_only=True)` allows, and each such name is bound to a
stand-in of ours that notes sizes and dtypes. Any other name ends the reading, and the error lists all of them.

The unpickler is Python's own in Python, slower than the one in C, whose memo grows to whatever index a file writes down.

Source: torch/_weights_only_unpickler.py, `_get_allowed_globals`; torch/_utils.py, `_rebuild_*`; torch/serialization.py,
`_save` and `_legacy_save` for the persistent identifiers (2.6 to 2.14).
"""

from __future__ import annotations

import collections
import itertools
import math
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO, ClassVar

from wherry.errors import BadCheckpoint
from wherry.where.files.listed import Saved, Storage
from wherry.where.printable import printable

ITEMSIZE = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1, "qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1,
}  # fmt: skip
"""Bytes of an element by dtype."""

_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "ComplexDoubleStorage": "complex128", "ComplexFloatStorage": "complex64",
    "QUInt8Storage": "quint8", "QInt8Storage": "qint8", "QInt32Storage": "qint32", "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
}  # fmt: skip


class Name(str):
    """A dtype, a layout, a device or a class, by its name."""

    __slots__ = ()


_Unpickler: Any = pickle._Unpickler  # noqa: SLF001 - the one in Python; typeshed does not know its stack and dispatch


class Reader(_Unpickler):
    """Unpickles into builtin containers and `Saved` tensors.

    Args:
        file: Where the pickle is.
        path: How the file is called in errors.
        storages: By the key of each; the same for several readers of one file.
        size_of: How many bytes a record really has, by its key, or None where there is none; not asked for older formats.
    """

    def __init__(
        self,
        file: BinaryIO,
        path: str,
        storages: dict[str, Storage],
        size_of: Callable[[str], int | None] | None = None,
    ) -> None:
        super().__init__(file, encoding="utf-8")
        self.path = path
        self.storages = storages
        self.size_of = size_of

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name, or the end."""
        found = stand_in("builtins" if module == "__builtin__" else module, name)
        if found is None:
            raise Refused(f"{module}.{name}")
        return found

    def persistent_load(self, pid: Any) -> Any:
        """A storage, of which the pickle has the key."""
        if type(pid) is not tuple or len(pid) < 5 or pid[0] != "storage":
            raise BadCheckpoint(self.path, f"it refers to something that is no storage ({printable(str(pid)[:60])})")
        _, kind, key, location, numel = pid[:5]
        if type(key) is not str or type(location) is not str or type(numel) is not int or numel < 0:
            raise BadCheckpoint(self.path, "it describes a storage without a key, a device and a size")
        known = self.storages.get(key)
        if known is not None:
            return known
        dtype = str(kind) if isinstance(kind, Name) and kind in ITEMSIZE else None
        nbytes = numel * ITEMSIZE.get(dtype or "uint8", 1)
        if self.size_of is not None and location != "meta":
            real = self.size_of(key)
            if real is None:
                raise BadCheckpoint(self.path, f"it has no record {key!r}, which a tensor of it needs")
            if real < nbytes:
                raise BadCheckpoint(
                    self.path, f"its record {key!r} has {real:,} bytes, where a tensor needs {nbytes:,}"
                )
        made = self.storages[key] = Storage(key, location, nbytes, dtype)
        return made

    # Objects of ours need no state, and must not get any: it would be set as attributes.
    dispatch: ClassVar[dict[int, Any]] = dict(_Unpickler.dispatch)

    def load_build(self) -> None:
        """A state for an object: what an OrderedDict or a range of torch.compile would get, and ours do without."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], dict | Saved | _Range):
            raise Refused(f"the state of a {type(self.stack[-1]).__name__} ({type(state).__name__})")

    dispatch[pickle.BUILD[0]] = load_build

    def load_extension(self) -> None:
        """A class by a number of `copyreg`: nothing that torch.save writes."""
        raise Refused("a class by its number")

    for _code in (pickle.EXT1, pickle.EXT2, pickle.EXT4):
        dispatch[_code[0]] = load_extension


def stand_in(module: str, name: str) -> Any:
    """What a name that is allowed is bound to, or None."""
    if (module, name) in ALLOWED:
        return ALLOWED[module, name]
    if (module == "torch" or (module == "torch.cuda" and name[0] != "Q")) and name in _STORAGES:
        return Name(_STORAGES[name])
    if module == "torch" and name in ITEMSIZE:
        return Name(name)
    return None


class Refused(Exception):
    """A pickle names what may not be loaded."""


def load(
    file: BinaryIO, path: str, storages: dict[str, Storage], size_of: Callable[[str], int | None] | None = None
) -> Any:
    """The next object of a pickle.

    Raises:
        BadCheckpoint: it is damaged, or names what `weights_only` does not allow.
    """
    start = file.tell()
    try:
        return Reader(file, path, storages, size_of).load()
    except Refused as err:
        raise _refusal(file, start, path, str(err)) from None
    except BadCheckpoint:
        raise
    except EOFError as err:
        raise BadCheckpoint(path, "its pickle ends too early", fix="It is truncated: fetch it again.") from err
    except RecursionError:
        raise BadCheckpoint(path, "its pickle is nested deeper than Python can read") from None
    except Exception as err:
        # A damaged pickle makes the unpickler fail in any way: KeyError of its memo, IndexError of its stack ...
        raise BadCheckpoint(path, f"its pickle is damaged ({type(err).__name__}: {printable(str(err)[:80])})") from err


def _refusal(file: BinaryIO, start: int, path: str, first: str) -> BadCheckpoint:
    """The error for a pickle that names what is not allowed, with all such names."""
    names, words = [first], set[str]()
    try:
        file.seek(start)
        strings: list[str] = []
        for op, argument, _ in itertools.islice(pickletools.genops(file), 200_000):
            if op.name == "GLOBAL" and isinstance(argument, str):
                names.append(argument.replace(" ", "."))
            elif op.name == "STACK_GLOBAL" and len(strings) >= 2:
                names.append(".".join(strings[-2:]))
            elif isinstance(argument, str):
                strings = [*strings[-1:], argument]
                if argument in _OF_MODULES:
                    words.add(argument)
    except Exception:  # noqa: BLE001, S110 - a damaged rest: the first name is known
        pass
    refused = [name for name in dict.fromkeys(names) if stand_in(*_split(name)) is None]
    refused.sort(key=lambda name: name.startswith("torch."))  # the program's own first
    shown = printable(", ".join(name[:200] for name in refused[:6]))
    shown += f" and {len(refused) - 6} more" if len(refused) > 6 else ""
    fix = (
        "Where you trust it, load it with torch.load(..., weights_only=False) and save tensors alone: "
        "torch.save(model.state_dict(), ...)"
    )
    fix += (
        "." if words == _OF_MODULES else "; what else belongs there as plain values, such as float(loss) or vars(args)."
    )
    cls = _class_of_tensor(names, refused)
    if words == _OF_MODULES:
        what = f"it is a whole pickled model, and loading it would run code of {shown}"
    elif cls is not None and refused == [cls]:
        what = f"it holds a tensor of the class {shown}, whose code would have to run to load it"
        fix = (
            "Where you trust it, load it with torch.load(..., weights_only=False) and save plain tensors: "
            "tensor.as_subclass(torch.Tensor)."
        )
    else:
        what = f"loading it would run code or classes: {shown}"
    return BadCheckpoint(path, f"{what}, which torch.load(weights_only=True) does not allow", fix=fix)


_OF_MODULES = {"_parameters", "_modules"}
"""What the state of every pickled module has."""


def _class_of_tensor(names: list[str], refused: list[str]) -> str | None:
    """The class of the first tensor in a pickle whose class is not allowed. It follows what rebuilds it and another function."""
    if _OF_TYPE not in names:
        return None
    at = names.index(_OF_TYPE)
    return next((name for name in names[at + 1 : at + 3] if name in refused), None)


_OF_TYPE = "torch._tensor._rebuild_from_type_v2"


def _split(name: str) -> tuple[str, str]:
    module, _, last = name.rpartition(".")
    return ("builtins" if module == "__builtin__" else module), last


# -- stand-ins for what rebuilds tensors


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or not all(type(n) is int and n >= 0 for n in value):
        raise ValueError(f"{str(value)[:40]} are no sizes")
    return tuple(value)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Saved:
    if not isinstance(storage, Storage):
        raise TypeError("a tensor without a storage")
    requires_grad = bool(rest) and rest[0] is True
    dtype = next((str(one) for one in rest if isinstance(one, Name) and one in ITEMSIZE), storage.dtype or "uint8")
    shape, strides = _sizes(size), _sizes(stride)
    if type(offset) is not int or offset < 0 or len(strides) != len(shape):
        raise ValueError("a tensor whose offset or strides are none")
    end = offset + 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if all(shape) else 0
    if end * ITEMSIZE[dtype] > storage.nbytes:
        raise ValueError(f"a tensor reaches to element {end:,} of a storage of {storage.nbytes:,} bytes")
    return Saved((storage,), dtype, shape, (offset, strides), 0, requires_grad)


def _quantized(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Saved:
    plain = _tensor(storage, offset, size, stride)
    return Saved(plain.storages, plain.dtype, plain.shape, plain.layout, note="quantized")


def _parameter(data: Any, requires_grad: Any = False, hooks: Any = None, state: Any = None) -> Any:
    if not isinstance(data, Saved):
        return data
    return replace(data, requires_grad=requires_grad is True, attributes=_attributes(state))


def _attributes(state: Any) -> dict[str, Any]:
    """What hangs in a tensor, of the state of an object: its dictionary, or that and its slots."""
    found: dict[str, Any] = {}
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, dict):
            found.update({name: value for name, value in part.items() if type(name) is str and name[:1] != "_"})
    return found


def _sparse(layout: Any, data: Any) -> Saved:
    parts = [part for part in data if isinstance(part, Saved)]
    sizes = next((part for part in data if isinstance(part, tuple) and all(type(n) is int for n in part)), None)
    if not parts:
        raise ValueError("a sparse tensor without parts")
    storages = tuple(storage for part in parts for storage in part.storages)
    return Saved(storages, parts[-1].dtype, sizes, (), 0, note=str(layout).removeprefix("torch."))


def _nested(buffer: Any, sizes: Any, *rest: Any) -> Saved:
    parts = [part for part in (buffer, sizes, *rest) if isinstance(part, Saved)]
    storages = tuple(storage for part in parts for storage in part.storages)
    return Saved(storages[::-1], parts[0].dtype, None, note="nested")


def _on_meta(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Saved:
    shape = _sizes(size)
    return Saved((), str(dtype), shape, (), math.prod(shape) * ITEMSIZE.get(str(dtype), 1), requires_grad is True)


def _jagged(parts: Any) -> Saved:
    if not isinstance(parts, dict) or not isinstance(parts.get("values"), Saved):
        raise TypeError("a jagged tensor without values")
    cache = parts.get("_metadata_cache")
    held = [*parts.values(), *(cache.values() if isinstance(cache, dict) else ())]
    storages = tuple(storage for part in held if isinstance(part, Saved) for storage in part.storages)
    return Saved(storages[::-1], parts["values"].dtype, None, requires_grad=parts.get("requires_grad") is True)


class _Range:
    """What torch.compile notes of a size that varies, and a jagged tensor carries along."""

    __slots__ = ()


def _from_type(function: Any, cls: Any, args: Any, state: Any) -> Any:
    made = function(*args) if function in _REBUILDERS else None
    if not isinstance(made, Saved):
        return made
    name = str(cls).rpartition(".")[2]
    return replace(made, note=made.note if name in _PLAIN else name, attributes=_attributes(state))


_PLAIN = ("Tensor", "Parameter")


def _wrapper(cls: Any, dtype: Any, size: Any, *rest: Any) -> Saved:
    return Saved((), str(dtype), _sizes(size), note=str(cls).rpartition(".")[2])


def _name(*words: Any) -> Name:
    return Name(":".join(str(word) for word in words))


def _set(items: Any = ()) -> list[Any]:
    return list(items)  # of stand-ins, which need not be hashable


def _counter(items: Any = ()) -> dict[Any, Any]:
    return dict(items)


def _bytes(data: Any = b"", *rest: Any) -> bytes:
    return data if isinstance(data, bytes) else b""  # not bytes(n), which takes any number of bytes


def _complex(real: float, imaginary: float) -> complex:
    return complex(real, imaginary)


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin1" if encoding == "latin1" else "utf-8")


def _elsewhere(data: Any, dtype: Any, device: Any, requires_grad: Any) -> Any:
    """A tensor of a device without storages (XLA and its kin), saved as one of the host."""
    return _parameter(data, requires_grad)


_REBUILDERS = (_tensor, _quantized, _parameter, _sparse, _nested, _jagged, _on_meta, _wrapper)

ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "Counter"): _counter,
    ("builtins", "set"): _set,
    ("builtins", "bytearray"): _bytes,
    ("builtins", "complex"): _complex,
    ("_codecs", "encode"): _encode,
    ("torch", "Size"): tuple,
    ("torch", "device"): _name,
    ("torch", "Tensor"): Name("Tensor"),
    ("torch.storage", "UntypedStorage"): Name("uint8"),
    ("torch.storage", "TypedStorage"): Name("uint8"),
    ("torch.nn.parameter", "Parameter"): Name("Parameter"),
    ("torch.serialization", "_get_layout"): _name,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor,
    ("torch._utils", "_rebuild_qtensor"): _quantized,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._utils", "_rebuild_sparse_tensor"): _sparse,
    ("torch._utils", "_rebuild_nested_tensor"): _nested,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _on_meta,
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): _elsewhere,
    ("torch._utils", "_rebuild_wrapper_subclass"): _wrapper,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    # Allowed once torch.nested and torch._dynamo have been imported, as torch says where they have not.
    ("torch.nested._internal.nested_tensor", "_rebuild_njt"): _jagged,
    ("torch.nested._internal.nested_tensor", "NestedTensor"): Name("NestedTensor"),
    ("torch._dynamo.decorators", "_DimRange"): _Range,
    **{
        ("torch", name): Name(name)
        for name in (
            "per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric",
            "per_channel_affine_float_qparams",
        )
    },
}  # fmt: skip
"""What `weights_only` allows, and our stand-in for it: tests/where/files/test_unpickled.py asks torch for its own list."""
