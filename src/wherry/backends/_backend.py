"""What a backend answers, so that no other room needs to know its name.

One file beside this one is one backend. It subclasses `Backend`, fills in the facts, and binds an instance to
`BACKEND`; the folder is the registry (`wherry.roster`), and the entry-point group `wherry.backends` adds those of third
parties. A backend loads without torch: whatever needs it imports it inside the method.

Two kinds of facts stand in a backend file: what the hardware here says (`probe`, `memory`) and what is true of any
machine of that kind (`capabilities`, `wording`, `virtual`), which is what a rehearsal and `wherry check` go by.
"""

from __future__ import annotations

import enum
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple


class State(enum.Enum):
    """Is a backend usable here? A broken one is told apart from an absent one."""

    PRESENT = "present"
    ABSENT = "absent"  # no hardware, or a torch built without it
    BROKEN = "broken"  # it should be here, but asking it failed: a driver too old, a library missing


@dataclass(frozen=True, slots=True)
class Presence:
    """The answer of `Backend.probe`."""

    state: State
    reason: str  # one clause, no full stop: why absent, what broke, or what is here
    count: int = 0
    names: tuple[str, ...] = ()  # one per device


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the whole device, all processes together."""

    free: int
    total: int


class Maturity(enum.Enum):
    """How far torch.compile is on a backend."""

    MATURE = "mature"
    PROTOTYPE = "prototype"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What any device of a backend can do. Dtypes are torch's names without the prefix ("bfloat16")."""

    dtypes: frozenset[str]
    streams: bool
    timed_events: bool
    graphs: bool
    pinned_memory: bool
    non_blocking: bool  # copies from pinned memory really queue
    autocast_dtypes: tuple[str, ...]
    autocast_default: str
    grad_scaler: bool
    foreach_default: bool
    fused_optimizers: tuple[str, ...]
    compile: Maturity
    distributed: str  # the torch.distributed backend: "nccl", "xccl", "gloo"


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of a backend's own errors.

    Attributes:
        check_prefix: the name in `wrapper_CUDA_mm`; None where no check is generated.
        tensor_type: what `Tensor.type()` starts with: "torch.cuda" in "torch.cuda.FloatTensor".
        lazy_init: what the first use of an absent device raises (exception type name, text).
        absent_to: what `.to(device)` raises where the device is absent, if not `lazy_init`.
        absent_alloc: what `torch.zeros(device=...)` raises where it is absent, if not `lazy_init`.
        out_of_memory: exception type name ("OutOfMemoryError" is torch's) and text, a format string of these fields:
            `tried_nbytes` and `index`, whole numbers; `tried`, `total`, `free`, `allocated`, `reserved`, `other` (allocated
            by others) and `limit` (the most one process may have), which are sizes as torch prints them ("2.00 GiB").
        no_dtype: what a tensor of a dtype raises where one is made on the device (exception type name, text), by the dtypes
            for which it does. Others that `Capabilities.dtypes` leaves out can be held as bytes.
        no_cast: what its kernels raise for a cast from or to a dtype that they do not know.
    """

    check_prefix: str | None
    tensor_type: str | None
    lazy_init: tuple[str, str]
    absent_to: tuple[str, str] | None = None
    absent_alloc: tuple[str, str] | None = None
    out_of_memory: tuple[str, str] = ("OutOfMemoryError", "")
    no_dtype: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    no_cast: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


@dataclass(frozen=True, slots=True)
class Profile:
    """One model of device, by which a rehearsal can be more particular than by its backend."""

    name: str  # as the device itself says it
    total_memory: int  # bytes
    # Fields of get_device_properties(), where they differ from those of `VirtualDevice.properties`.
    properties: Mapping[str, object] = field(default_factory=dict[str, object])
    # What a kernel raises that computes in a dtype (exception type name, text), by the dtypes for which it does. Tensors of
    # them can be held, copied, cast and compared.
    no_compute: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    # The same for operators that say it in other words: "sum" -> ...
    no_compute_by_op: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


@dataclass(frozen=True, slots=True)
class AllocatorSizes:
    """In what sizes a device's caching allocator works, in bytes. The defaults are those of CUDA, ROCm and XPU.

    Source: c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp (torch 2.13).
    """

    block: int = 512  # kMinBlockSize: requests are rounded up to a multiple of it
    small: int = 1 << 20  # kSmallSize: up to this they share small segments
    small_segment: int = 2 << 20  # kSmallBuffer
    large: int = 10 << 20  # kMinLargeAlloc: below this they share large segments
    large_segment: int = 20 << 20  # kLargeBuffer
    segment_multiple: int = 2 << 20  # kRoundLarge: from there on each has its own, of a multiple of this


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """What one rehearsed device says of itself, taken from a common real one (its source beside it)."""

    name: str
    total_memory: int  # bytes
    max_count: int  # 1 where torch knows one device only
    # Dotted torch names and what they are on such a machine: "torch.version.hip", or a function that answers.
    constants: Mapping[str, object] = field(default_factory=dict[str, object])
    # Fields of get_device_properties().
    properties: Mapping[str, object] = field(default_factory=dict[str, object])
    # Other models, by the short names users type: "rtx4090".
    profiles: Mapping[str, Profile] = field(default_factory=dict[str, Profile])
    # What torch was built for: get_arch_list().
    architectures: tuple[str, ...] = ()
    # Versions of the libraries behind it, as torch gives them: "cudnn" -> 92000, "nccl" -> (2, 29, 7).
    libraries: Mapping[str, object] = field(default_factory=dict[str, object])
    allocator: AllocatorSizes = field(default_factory=AllocatorSizes)
    highest_priority: int = 0  # of a stream; 0 is the lowest
    # Ops with kernels for dtypes that the CPU has none for: "histc" -> {"int64", ...}.
    beyond_cpu: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    # Ops whose result has another dtype than on the CPU, which computes in one that the device lacks: by the dtype of their
    # last tensor. "bincount" -> {"int64": "int32", ...}
    narrower: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    # Ops ("histc", or one overload "median.dim") whose kernels refuse under torch.use_deterministic_algorithms(True) where
    # the CPU's do not, and the name that their text gives.
    nondeterministic: Mapping[str, str] = field(default_factory=dict[str, str])

    def profile(self, name: str | None) -> Profile:
        """A model by its short name, with all its properties; None is the usual one.

        Raises:
            KeyError: there is no such model.
        """
        if name is None:
            return Profile(self.name, self.total_memory, self.properties)
        found = self.profiles[name]
        return replace(found, properties={**self.properties, **found.properties})


class Span(NamedTuple):
    """The releases of torch for which a fact holds, both ends included: Span("2.8", "2.13"). None is an open end."""

    since: str | None = None
    until: str | None = None

    def holds(self, release: str) -> bool:
        """Whether a release ("2.13.0+cpu") is among them."""
        asked = _minor(release)
        return (self.since is None or _minor(self.since) <= asked) and (
            self.until is None or asked <= _minor(self.until)
        )


def _minor(release: str) -> tuple[int, int]:
    major, minor = release.split(".")[:2]
    return int(major), int(minor)


class Limit(NamedTuple):
    """What a kernel refuses that the CPU's takes.

    `refuses` is a function of the arguments by name that answers with an exception (type name, text), or None where there is
    nothing to refuse; `span` the releases for which it does; `seldom` whether few programs come near it.
    """

    refuses: Callable[[Mapping[str, Any]], tuple[str, str] | None]
    span: Span = Span()
    seldom: bool = False


@dataclass(frozen=True, slots=True)
class Unsupported:
    """What a kernel raises for the dtypes that it does not have.

    Attributes:
        dtypes: those of the first operand for which it does.
        kernel: the name that its text gives.
        error: the exception (type name, text), a format string of `kernel` and `dtype`, as C++ prints it ("Long").
        when: whether arguments by name lead to this kernel; None where all do.
        empty: whether it does so too where an operand has no elements, and so nothing to compute.
    """

    dtypes: frozenset[str]
    kernel: str
    error: tuple[str, str] = ("NotImplementedError", "\"{kernel}\" not implemented for '{dtype}'")  # ATen/Dispatch.h
    when: Callable[[Mapping[str, Any]], bool] | None = None
    empty: bool = False

    def words(self, dtype: str) -> tuple[str, str]:
        """The exception for one dtype (type name, text)."""
        kind, text = self.error
        return kind, text.format(kernel=self.kernel, dtype=printed(dtype))


@dataclass(frozen=True, slots=True)
class Kernels:
    """Which operators a backend has kernels for, beside what torch's own tables show, and what it says where it has none.

    Which overloads have a kernel is read from the `native_functions.yaml` that ships with torch (`wherry.ops.catalog`).
    Here stands what that file does not show. Overloads are named without their namespace: "linalg_svd.U".

    An overload has a kernel of its own if the key stands in the dispatch table of its entry, or in that of the entry that
    it delegates to (`structured_delegate`). So it is here: what is said of "linalg_qr.out" holds of "linalg_qr", which
    delegates to it and is not named. An overload without a kernel of its own is missing only if torch has no composite
    one: a fused `_foreach_clone` that is not there decomposes.

    Attributes:
        key: the dispatch key of its kernels: "MPS".
        shares: the key of another backend whose kernels it has too, as far as the yaml can tell, because its own are
            registered elsewhere; None where the yaml is complete.
        shares_in: the releases for which that is so; in others the yaml is complete.
        also: overloads with a kernel that neither shows.
        without: overloads without one although `shares` has it.
        falls_back: overloads that go through the CPU always, without being asked to. They have no kernel, and `without`
            does not name them again.
        error: what one without a kernel raises (exception type name, text). A format string of `operator`, with its
            namespace, and `commit`, of the build. None: what the dispatcher says, which lists the kernels of the build.
        error_by_namespace: the same by the namespace of the operator ("c10d"), where that has no way through the CPU.
        variable: the environment variable that sends those through the CPU instead, if it is a number but 0 when torch is
            imported; None where there is none.
        warning: what the first way through the CPU in a process warns of, with the `operator` in it.
        one_device: what refuses operands at two places before the way through the CPU, by the releases that do; none where
            they all go. A format string of `first` and `second`, which are devices, and of `operator`, with its namespace
            and without its overload. Two devices that it would call the same ("{first.type}") are one place.
        limits: what kernels refuse that the CPU's take, by operator.
        unsupported: the dtypes that kernels refuse and the CPU's take, by operator, or by overload where its others differ.
            What is said of an operator holds of its in-place and `out=` forms. The first that applies to a call is raised.
        source: where the tables are from, and of which date.
    """

    key: str
    shares: str | None = None
    shares_in: Span = field(default_factory=Span)
    also: Mapping[str, Span] = field(default_factory=dict[str, Span])
    without: Mapping[str, Span] = field(default_factory=dict[str, Span])
    falls_back: Mapping[str, Span] = field(default_factory=dict[str, Span])
    error: tuple[str, str] | None = None
    error_by_namespace: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    variable: str | None = None
    warning: str | None = None
    one_device: Mapping[str, Span] = field(default_factory=dict[str, Span])
    limits: Mapping[str, Limit] = field(default_factory=dict[str, "Limit"])
    unsupported: Mapping[str, tuple[Unsupported, ...]] = field(default_factory=dict[str, tuple[Unsupported, ...]])
    source: str = ""

    def unsupported_by(self, overload: str) -> tuple[Unsupported, ...]:
        """What `unsupported` says of an overload: "addmm_", "scatter_.reduce"."""
        operator, _, name = overload.partition(".")
        operator = operator.rstrip("_")
        return self.unsupported.get(f"{operator}.{name}") or self.unsupported.get(operator, ())


@dataclass(frozen=True, slots=True)
class Quirk:
    """A fact that looks like a mistake, with the torch version it holds from and its link."""

    what: str
    since: str
    source: str


class Backend:
    """One kind of device. Subclass it in a file of its own; see `cpu.py` for the smallest."""

    name: str  # what a user calls it: "rocm"
    device_type: str  # what torch.device says: "cuda"
    title: str  # for tables: "AMD ROCm"
    namespace: str | None  # the torch module that speaks for it: "torch.cuda"
    aliases: tuple[str, ...] = ()  # other names users type: ("nvidia", "gpu")
    priority: int  # pick() tries higher ones first
    capabilities: Capabilities
    wording: Wording
    virtual: VirtualDevice | None  # None: cannot be rehearsed
    quirks: tuple[Quirk, ...] = ()

    kernels: Kernels | None = None  # None: it has every kernel, as the CPU has
    visibility: tuple[str, ...] = ()  # environment variables that hide devices, the one that wins first

    def probe(self) -> Presence:
        """Is it usable in this process? Never raises: a failure is `State.BROKEN` with its reason.

        It may start the backend's runtime, to learn the names of the devices; `count` does not.
        """
        try:
            importlib.import_module("torch")
        except ModuleNotFoundError as err:
            if err.name == "torch":
                return Presence(State.ABSENT, "torch is not installed")
            return Presence(State.BROKEN, f"torch does not import: {err}")
        except (ImportError, OSError) as err:  # a shared library that is missing raises OSError
            return Presence(State.BROKEN, f"torch does not import: {err}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of a broken driver; the reason below says it once
            try:
                return self.look()
            except Exception as err:  # noqa: BLE001 - drivers raise anything; the reason is kept and shown
                return Presence(State.BROKEN, first_line(err))

    def look(self) -> Presence:
        """`probe` for subclasses to fill in: torch imports, and what is raised here counts as broken."""
        raise NotImplementedError

    def count(self) -> int:
        """How many devices this process could use now; 0 when absent. Starts no runtime. Needs torch."""
        raise NotImplementedError

    def memory(self, index: int) -> Memory | None:
        """Free and total bytes of device `index`; None where the backend cannot tell."""
        raise NotImplementedError

    def hidden_by(self) -> str | None:
        """The environment variable that decides which devices are seen, as a clause, if one is set."""
        for name in self.visibility:
            if name in os.environ:
                return f'{name} is "{os.environ[name]}"'
        return None

    def can_hold(self, dtype: str, index: int | None = None) -> bool:
        """Whether tensors of this dtype ("float64") can live and be computed with here.

        With an index that very device is asked, where devices of one backend differ.
        """
        return dtype in self.capabilities.dtypes

    def compiles(self) -> Maturity:
        """How far torch.compile is here with the installed torch, where `Capabilities.compile` tells of the newest.

        Needs torch, and no device.
        """
        return self.capabilities.compile


def why_unusable(start: Callable[[], object], *, absent: tuple[str, ...], hidden_by: str | None) -> Presence:
    """Start a runtime that reports no device, to learn the reason.

    Args:
        start: Starts the runtime and raises when that fails: `torch.cuda.init`.
        absent: Texts that mean "no hardware". Any other means that something is broken.
        hidden_by: The environment variable that may be the cause, as a clause.
    """
    try:
        start()
    except Exception as err:  # noqa: BLE001 - drivers raise anything; the reason is kept and shown
        reason = first_line(err)
        state = State.ABSENT if any(text in reason for text in absent) else State.BROKEN
    else:
        reason, state = "its runtime starts, but shows no device", State.ABSENT
    return Presence(state, f"{reason} ({hidden_by})" if hidden_by else reason)


def first_line(err: BaseException) -> str:
    """The first line of an exception's text, without its full stop; its type where it has no text."""
    text = str(err).strip().split("\n", 1)[0].rstrip(".")
    return text or type(err).__name__


# c10/core/ScalarType.h, `toString`.
_PRINTED = {
    "bool": "Bool",
    "uint8": "Byte",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def printed(dtype: str) -> str:
    """How C++ prints a dtype: "Long" for "int64"."""
    return _PRINTED.get(dtype) or dtype.capitalize()


# What every kind of device can hold. The rest differs.
INTEGERS = frozenset({"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"})
FLOATS = frozenset({"float16", "bfloat16", "float32"})
FLOAT8 = frozenset({"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"})
COMPLEX = frozenset({"complex32", "complex64", "complex128"})
QUANTIZED = frozenset({"qint8", "quint8", "qint32"})
