"""Which kernels the operators of PyTorch's database call in the end, of those that some backend lacks.

    python scripts/reach.py          the table of src/wherry/ops/reach.py, as it stands there

Every entry of the database is run on the CPU, in float32 and on a few samples, below autograd: there a dispatch mode sees
composite operators as well, of either kind. Each is taken apart by its own composite kernel, so that all that it calls is
seen, and from where. The backward pass is looked at apart.

What the CPU alone would call is left out: operators that belong to another backend, and what composites of `WHOLE` pick.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves

from wherry import backends
from wherry.dispatch import DispatchMode, OpOverload, run_kernel, signature
from wherry.native_functions import native
from wherry.ops import catalog
from wherry.ops.catalog import Standing
from wherry.ops.instead import packet

WHOLE = {
    "convolution": "by device and layout: the CPU goes to oneDNN or to its own loops, a device to its library",
    "convolution_backward": "as convolution",
    "_convolution": "as convolution",
    "scaled_dot_product_attention": "by device: the CPU has a fused kernel of its own",
    "batch_norm": "by device: cuDNN, MIOpen, or native_batch_norm",
    "lstm": "by device: a device has one kernel for all steps",
    "grid_sampler": "by device: cuDNN where it can",
    "detach": "it copies what a tensor is besides its values, which asks a mode again",
}
"""Composite operators that are not taken apart, and why: mostly as the CPU's way says nothing of a device's."""

IMAGE = torch.rand(1, 1, 8, 8, requires_grad=True)
MATRIX = torch.rand(4, 4, requires_grad=True)

BESIDE: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("interpolate", lambda: F.interpolate(IMAGE, size=3, mode="bilinear", antialias=True)),
    ("interpolate", lambda: F.interpolate(IMAGE, size=3, mode="bicubic", antialias=True)),
    ("slogdet", lambda: torch.slogdet(MATRIX)),
    ("embedding", lambda: F.embedding(torch.tensor([1]), MATRIX, max_norm=1.0)),
    ("fake_quantize_per_tensor_affine", lambda: torch.fake_quantize_per_tensor_affine(MATRIX, 0.1, 0, -128, 127)),
    ("fake_quantize_per_channel_affine", lambda: torch.fake_quantize_per_channel_affine(
        MATRIX, torch.ones(4), torch.zeros(4, dtype=torch.int32), 0, -128, 127)),
    ("to_sparse_csr", MATRIX.to_sparse_csr),
    ("to_sparse_csc", MATRIX.to_sparse_csc),
    ("to_sparse_bsr", lambda: MATRIX.to_sparse_bsr((2, 2))),
    ("to_sparse_bsc", lambda: MATRIX.to_sparse_bsc((2, 2))),
)  # fmt: skip
"""What the database does not have, or not so."""

SAMPLES = 12
"""Of each entry about as many, spread over the first 64."""

LACKS = (Standing.MISSING, Standing.FALLS_BACK)
ON = tuple(backend for backend in backends.all() if backend.virtual is not None and backend.kernels is not None)

Route = tuple[str, ...]


@dataclass
class Seen:
    """What runs of one operator reached.

    Attributes:
        routes: The ways to what some backend lacks. A route ends in such an overload; before it stand those on the way that
            some backend does not take apart, since it has a kernel for them or sends them through the CPU as a whole.
        runs, found: How many there were, and how many of them took such a way.
    """

    routes: set[Route] = field(default_factory=set)
    runs: int = 0
    found: int = 0

    def add(self, routes: set[Route]) -> None:
        self.routes |= routes
        self.runs += 1
        self.found += bool(routes)


class Calls:
    """Who calls what: `forward` and `backward` by operator; and `edges`.

    An edge is an explicitly composite overload with the overload that it calls, maybe through implicit ones, and that some
    backend lacks.
    """

    def __init__(self) -> None:
        self.forward: dict[str, Seen] = defaultdict(Seen)
        self.backward: dict[str, Seen] = defaultdict(Seen)
        self.edges: set[tuple[str, str]] = set()


class Watch(DispatchMode):
    """Notes what one call reaches below autograd, and takes composite operators apart.

    Args:
        calls: Where to note it.
        root: What the program calls.
        backward: Whether what runs is its backward pass.
    """

    def __init__(self, calls: Calls, root: str, *, backward: bool) -> None:
        super().__init__()
        self.calls = calls
        self.root = root
        self.seen = (calls.backward if backward else calls.forward)[root]
        self.reached: set[Route] = set()
        self.stack: list[tuple[str, str, set[Route]]] = []  # overloads, their keys, and what each reached

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = signature(func).name.removeprefix("aten::")
        if func.namespace == "aten":
            self.note(name)
        key = self.composite(name)
        if key is None:
            return func(*args, **kwargs or {})
        self.stack.append((name, key, set()))
        try:
            with self:
                return run_kernel(func, key, args, kwargs or {})
        finally:
            *_, reached = self.stack.pop()
            self.calls.forward[packet(name)].add(reached)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if not self.stack:
            self.seen.add(self.reached)

    def note(self, name: str) -> None:
        if not lacks(name):
            return
        names = [caller for caller, *_ in self.stack]
        self.reached.add(route([each for each in names if packet(each) != self.root], name))
        for position, (*_, reached) in enumerate(self.stack):
            reached.add(route(names[position + 1 :], name))
        for caller, key, _ in reversed(self.stack):
            if key != "CompositeImplicitAutograd":
                self.calls.edges.add((caller, name))
            if key != "CompositeImplicitAutograd" or lacks(caller):
                break

    def composite(self, name: str) -> str | None:
        """The key of the kernel to take an operator apart with, where some backend would do so."""
        entry = native(name)
        if entry is None or entry.composite is None or entry.delegate is not None:
            return None
        if packet(name) in WHOLE or Standing.COMPOSITE not in standings(name):
            return None
        return entry.composite


def standings(name: str) -> list[Standing]:
    """How an overload stands on each backend that can be rehearsed."""
    return [catalog.support(name, backend).standing for backend in ON]


def lacks(name: str) -> bool:
    """Whether some backend lacks an overload."""
    return any(each in LACKS for each in standings(name))


def route(between: Sequence[str], name: str) -> Route:
    return (*(each for each in between if {*standings(each)} != {Standing.COMPOSITE}), name)


def entries() -> list[OpInfo]:
    """The entries of the database that have float32."""
    return [entry for entry in op_db if torch.float32 in entry.dtypes]


def derive() -> Calls:
    """Run all entries of the database; about ten seconds."""
    calls = Calls()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry in entries():
            _run(entry, calls)
        for name, call in BESIDE:
            _watch(call, calls, name)
    return calls


def _run(entry: OpInfo, calls: Calls) -> None:
    name, *others = (_name(each) for each in (entry.aten_name, *(alias.name for alias in entry.aliases)))
    for sample in _samples(entry):
        _watch(partial(entry.op, sample.input, *sample.args, **sample.kwargs), calls, name)
    for each in others:
        calls.forward[each], calls.backward[each] = calls.forward[name], calls.backward[name]


def _name(of: str) -> str:
    """What a program calls, as the dispatcher writes it: "linalg_det", "ctc_loss", "special_airy_ai"."""
    return of.removeprefix("nn.functional.").replace(".", "_")


def _watch(call: Callable[[], Any], calls: Calls, name: str) -> None:
    # Whatever an operator raises on the CPU, it has called what it has called.
    with suppress(Exception), torch.no_grad(), below_autograd(), Watch(calls, name, backward=False):
        call()
    with suppress(Exception):
        outs = [each for each in tree_leaves(call()) if isinstance(each, Tensor) and each.requires_grad]
        with below_autograd(), Watch(calls, name, backward=True):
            torch.autograd.backward(outs, [torch.ones_like(each) for each in outs])


def below_autograd() -> AbstractContextManager[None]:
    """Where a mode sees implicitly composite operators too, which autograd takes apart elsewhere."""
    return torch._C._AutoDispatchBelowAutograd()  # noqa: SLF001 - nothing public does it


def _samples(entry: OpInfo) -> list[SampleInput]:
    torch.manual_seed(0)
    with suppress(Exception):
        # Not `sample_inputs`, which looks through the whole stack for the name of a test.
        made = list(islice(entry.sample_inputs_func(entry, "cpu", torch.float32, entry.supports_autograd), 64))
        return made[:: max(1, len(made) // SAMPLES)]
    return []


def table(calls: Calls) -> str:
    """The table as it stands in src/wherry/ops/reach.py: `names | forward | backward`, with ">" along a route.

    A "?" stands before routes that not every call took. That an operator calls another overload of its own is left out:
    the catalog knows.
    """
    rows = defaultdict(list)
    for name in sorted({*calls.forward, *calls.backward}):
        ahead, back = calls.forward[name], calls.backward[name]
        others = {each for each in ahead.routes if any(packet(one) != name for one in each)}
        ways = [_shown(ahead, others), _shown(back, back.routes - ahead.routes)]
        if any(ways):
            rows[" | ".join(ways)].append(name)
    return "\n".join(sorted(f"{' '.join(names)} | {ways}".rstrip() for ways, names in rows.items()))


def _shown(seen: Seen, routes: Iterable[Route]) -> str:
    shown = sorted(">".join(each) for each in routes)
    return " ".join(["?", *shown] if shown and seen.found < seen.runs else shown)


if __name__ == "__main__":
    print(table(derive()))
