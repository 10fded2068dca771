"""What does it cost to move a batch, for each tensor in it?

    python benchmarks/move.py --check

The floor is `tensor.to(device)` alone, on a flat list of the same tensors; the naive way is `tree_map` of torch's own
pytrees. The peers are what other libraries move batches with, each where it is installed: the extra `bench` lists them.
Two directions: from the CPU to the CPU, where all is there already, as in a training loop that moves what its loader has
moved; and from the CPU to meta, where each tensor is made anew but no byte is copied, so that nearly all of the time is
the walk and torch's dispatch.

Answers come before times. A peer that leaves a tensor behind in a structure, or fails on it, says so in its row and is not
compared with: doing less takes less.

Promised, in the time of the fastest peer that moves everything, on each structure: at most 0.5 where all is there already,
at most 1.05 where all must move.
"""

from __future__ import annotations

import importlib
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, make_dataclass
from typing import Any

import torch
from measure.rounds import Rounds, Target, clock, parser, play, report
from torch import Tensor
from torch.utils import _pytree

from wherry import move

GO_SECONDS = 0.003
OURS, FLOOR = "wherry.move", "bare t.to, flat list"
CPU, META = (
    torch.device("cpu"),
    torch.device("meta"),
)  # parsing their names takes as long as finding that a tensor is there
Way = Callable[[Any, torch.device], Any]


@dataclass(frozen=True, slots=True)
class Structure:
    """A batch: how it is made of a source of tensors, and how a user reads its tensors."""

    name: str
    build: Callable[[Callable[[], Tensor]], Any]
    leaves: Callable[[Any], Iterable[Tensor]]


Fifty = namedtuple("Fifty", [f"f{i}" for i in range(50)])  # noqa: PYI024 - fifty fields by number
DataFifty = make_dataclass("DataFifty", [(f"f{i}", Tensor) for i in range(50)])


def nested(t: Callable[[], Tensor]) -> dict[str, Any]:
    """Five levels: a dict of 2 lists of 2 dicts of 2 lists of 5 dicts of 5 tensors."""
    innermost = lambda: {key: t() for key in "vwxyz"}  # noqa: E731
    return {a: [{c: [innermost() for _ in range(5)] for c in "cd"} for _ in range(2)] for a in "ab"}


def nested_leaves(obj: Mapping[str, Any]) -> list[Tensor]:
    return [t for lists in obj.values() for d in lists for each in d.values() for last in each for t in last.values()]


STRUCTURES = (
    Structure("dict of 8", lambda t: {key: t() for key in "abcdefgh"}, lambda obj: obj.values()),
    Structure("nested 200", nested, nested_leaves),
    Structure("namedtuple of 50", lambda t: Fifty(*(t() for _ in range(50))), lambda obj: obj),
    Structure(
        "dataclass of 50",
        lambda t: DataFifty(*(t() for _ in range(50))),
        lambda obj: [getattr(obj, field.name) for field in fields(obj)],
    ),
    Structure("list of 2,000", lambda t: [t() for _ in range(2000)], lambda obj: obj),
)
DIRECTIONS = {"there already (cpu to cpu)": (CPU, 0.5), "moved (cpu to meta)": (META, 1.05)}


def pytree(_: Any) -> Way:
    return lambda obj, device: _pytree.tree_map(lambda t: t.to(device), obj)


def optree(library: Any) -> Way:
    return lambda obj, device: library.tree_map(lambda t: t.to(device), obj)


def lightning_apply(library: Any) -> Way:
    return lambda obj, device: library.apply_to_collection(obj, Tensor, lambda t: t.to(device))


def tensordict(library: Any) -> Way:
    """There and back: a dict is what is compared. A TensorDict that knows its device needs no walk to say that it is there."""
    return lambda obj, device: library.TensorDict.from_dict(obj, auto_batch_size=False).to(device).to_dict()


# Its name, the module it is in, and the way it moves an object.
PEERS: Mapping[str, tuple[str, Callable[[Any], Way]]] = {
    "torch pytree tree_map": ("torch", pytree),
    "accelerate send_to_device": ("accelerate.utils", lambda m: m.send_to_device),
    "lightning move_data_to_device": ("lightning_fabric.utilities", lambda m: m.move_data_to_device),
    "lightning apply_to_collection": ("lightning_utilities.core.apply_func", lightning_apply),
    "ignite convert_tensor": ("ignite.utils", lambda m: lambda obj, device: m.convert_tensor(obj, device=device)),
    "torchtnt copy_data_to_device": ("torchtnt.utils.device", lambda m: m.copy_data_to_device),
    "optree tree_map": ("optree", optree),
    "tensordict, from a dict and back": ("tensordict", tensordict),
}


def installed() -> dict[str, Way]:
    """The peers that are here. Of each other one a word is said."""
    found: dict[str, Way] = {}
    for name, (module, make) in PEERS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[name] = make(importlib.import_module(module))
            except ImportError as err:
                print(f"skipped {name}: {err}")
    return found


def fault(way: Way, structure: Structure) -> str | None:
    """What is wrong with the way's answer for this structure, if anything is."""
    obj = structure.build(lambda: torch.ones(4))
    count = len(list(structure.leaves(obj)))
    try:
        moved, there = way(obj, META), way(obj, CPU)
        answers = list(structure.leaves(moved)), list(structure.leaves(there))
    except Exception as err:  # noqa: BLE001 - whatever a peer raises is its answer
        return f"fails: {type(err).__name__}"
    if {len(tensors) for tensors in answers} != {count}:
        return "loses tensors"
    left = sum(t.device != META for t in answers[0])
    if left:
        return f"leaves {left} of {count} behind"
    same = all(torch.equal(t, torch.ones(4)) and t.device == CPU for t in answers[1])
    return None if same else "changes values"


def sampler(function: Callable[[], object], leaves: int) -> Callable[[], float]:
    """Seconds for one tensor."""
    count = 0  # found at the first sample, the one that does not count

    def sample() -> float:
        nonlocal count
        count = count or max(1, int(GO_SECONDS / clock(function, 1)))
        return clock(function, count) / leaves

    return sample


def candidates(structure: Structure, ways: Mapping[str, Way], device: torch.device) -> dict[str, Callable[[], float]]:
    obj = structure.build(lambda: torch.ones(4))
    flat = list(structure.leaves(obj))
    functions: dict[str, Callable[[], object]] = {FLOOR: lambda: [t.to(device) for t in flat]}
    for name, way in ways.items():
        functions[name] = lambda way=way: way(obj, device)
    return {name: sampler(function, len(flat)) for name, function in functions.items()}


def row(structure: Structure, direction: str, name: str, rounds: Rounds, fastest: str | None) -> dict[str, object]:
    return {
        "structure": structure.name,
        "direction": direction,
        "way": f"{name} (fastest peer)" if name == fastest else name,
        "ns a tensor": rounds.seconds(name) * 1e9,
        "x fastest peer": rounds.ratio(name, fastest) if fastest else None,
        "x bare t.to": rounds.ratio(name, FLOOR),
    }


def main() -> None:
    args = parser(__doc__.splitlines()[0], rounds=15, parts=[structure.name for structure in STRUCTURES]).parse_args()
    torch.set_num_threads(1)

    rows, targets = [], []
    peers = installed()
    for structure in STRUCTURES:
        if args.only not in (None, structure.name):
            continue
        wrong = fault(move, structure)
        if wrong is not None:
            raise SystemExit(f"{OURS}: {structure.name}: {wrong}")
        faults = {name: fault(way, structure) for name, way in peers.items()}
        for name, what in faults.items():
            if what is not None:
                print(f"not compared, {structure.name}: {name} {what}")
        whole = {name: way for name, way in peers.items() if faults[name] is None}
        for direction, (device, limit) in DIRECTIONS.items():
            rounds = play(candidates(structure, {OURS: move, **whole}, device), args.rounds)
            fastest = min(whole, key=lambda name: rounds.seconds(name).median, default=None)
            rows += [row(structure, direction, name, rounds, fastest) for name in rounds.samples]
            if fastest is None:
                print(f"nothing promised, {structure.name}: no peer that is installed moves all of it")
                continue
            what = f"{structure.name}, {direction}, in the time of {fastest}"
            targets.append(Target(what, rounds.ratio(OURS, fastest).median, limit))
    report(
        __doc__.splitlines()[0],
        "tensors of 4 float32 (16 bytes), each of its own storage; one thread",
        rows,
        targets,
        args,
    )


if __name__ == "__main__":
    main()
