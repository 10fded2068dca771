"""What does it cost to take 64 MiB from torch to MLX, and back?

    python benchmarks/mlx_there_and_back.py --check

The naive ways go through NumPy, through MLX's or torch's own import, or through a list. Peak is the most memory that the
process had during one conversion beyond what it had before, in sizes of the tensor: 1 is one copy. Lists are of
4 MiB, since a list of 64 takes a gigabyte; their GB/s are what can be compared. bfloat16 has no way through NumPy but float32.

Promised: one copy there, none back, and no more time there than 1.25 of `mx.array(tensor)`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from measure.rounds import Rounds, Target, clock, parser, play, report

from wherry.move.foreign import from_mlx, to_mlx

try:
    import mlx.core as mx  # this file is not called mlx.py, or it would be found here
except ImportError as error:
    raise SystemExit(f"needs MLX: {error}. Install it with: pip install 'wherry[mlx]'") from error

NBYTES = 64 * 2**20
LIST_NBYTES = 4 * 2**20
OURS = "wherry"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to convert. Its result is what the next library holds, computed."""

    name: str
    convert: Callable[..., object]
    nbytes: int = NBYTES
    shares: bool = False


def evaluated(convert: Callable[..., mx.array]) -> Callable[..., object]:
    def call(tensor: torch.Tensor) -> mx.array:
        array = convert(tensor)
        mx.eval(array)
        return array

    return call


THERE = {
    "float32": (
        Way(OURS, to_mlx),
        Way("mx.array(t)", evaluated(mx.array)),
        Way("mx.array(t.numpy())", evaluated(lambda t: mx.array(t.numpy()))),
        Way("mx.array(t.tolist())", evaluated(lambda t: mx.array(t.tolist())), LIST_NBYTES),
    ),
    "bfloat16": (
        Way(OURS, to_mlx),
        Way("mx.array(t)", evaluated(mx.array)),
        Way("mx.array(t.float().numpy()).astype", evaluated(lambda t: mx.array(t.float().numpy()).astype(mx.bfloat16))),
    ),
}
BACK = {
    "float32": (
        Way(OURS, from_mlx, shares=True),
        Way("torch.from_dlpack(a)", torch.from_dlpack, shares=True),
        Way("torch.from_numpy(np.array(a))", lambda a: torch.from_numpy(np.array(a))),
        Way("torch.tensor(a.tolist())", lambda a: torch.tensor(a.tolist()), LIST_NBYTES),
    ),
    "bfloat16": (
        Way(OURS, from_mlx, shares=True),
        Way("torch.from_dlpack(a)", torch.from_dlpack, shares=True),
        Way(
            "torch.from_numpy(np.array(a.astype(float32))).bfloat16()",
            lambda a: torch.from_numpy(np.array(a.astype(mx.float32))).bfloat16(),
        ),
    ),
}
PARTS = {
    f"{direction} {dtype}": ways
    for direction, kinds in (("there", THERE), ("back", BACK))
    for dtype, ways in kinds.items()
}


def source(part: str, way: Way) -> object:
    direction, _, name = part.partition(" ")
    dtype = getattr(torch, name)
    tensor = torch.arange(way.nbytes // dtype.itemsize, dtype=torch.int32).remainder_(251).to(dtype)
    return tensor if direction == "there" else to_mlx(tensor)


def check_answer(part: str, way: Way) -> None:
    given = source(part, way)
    made = way.convert(given)
    there, back = (given, from_mlx(made)) if isinstance(given, torch.Tensor) else (from_mlx(given), made)
    if there.dtype != back.dtype or not torch.equal(there, back):
        raise SystemExit(f"{way.name}, {part}: is not what went in")


def sampler(part: str, way: Way) -> Callable[[], float]:
    given = source(part, way)
    return lambda: clock(lambda: way.convert(given), 200 if way.shares else 1)


def memory(word: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most."""
    return int(Path("/proc/self/status").read_text(encoding="ascii").partition(f"{word}:")[2].split()[0]) * 2**10


def peak(part: str, way: Way) -> float | None:
    """The most memory during one conversion, in sizes of the tensor; None where the system does not tell."""
    given = source(part, way)
    gc.collect()
    mx.clear_cache()  # or MLX takes memory that it already has
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew (proc(5))
    except OSError:
        return None
    before = memory("VmRSS")
    made = way.convert(given)  # noqa: F841 - kept until it is counted
    return (memory("VmHWM") - before) / way.nbytes


def row(part: str, way: Way, rounds: Rounds, copies: float | None) -> dict[str, object]:
    seconds = rounds.seconds(way.name)
    same_size = way.nbytes == NBYTES
    return {
        "part": part,
        "way": way.name,
        "ms": seconds * 1e3,
        "GB/s": None if way.shares else round(way.nbytes / seconds.median / 1e9, 3),
        "x wherry's": rounds.ratio(way.name, OURS) if same_size else None,
        "peak": None if copies is None else round(copies, 2),
    }


def main() -> None:
    args = parser(__doc__.splitlines()[0], rounds=9, parts=list(PARTS)).parse_args()
    torch.set_num_threads(1)

    rows, targets = [], []
    for part, ways in PARTS.items():
        if args.only not in (None, part):
            continue
        for way in ways:
            check_answer(part, way)
        copies = {way.name: peak(part, way) for way in ways}
        rounds = play({way.name: sampler(part, way) for way in ways}, args.rounds)
        rows += [row(part, way, rounds, copies[way.name]) for way in ways]
        ours = copies[OURS]
        if ours is not None:
            targets.append(Target(f"copies, {part}", ours, 1.05 if part.startswith("there") else 0.05))
        if part.startswith("there"):
            targets.append(Target(f"time in mx.array(t)'s, {part}", rounds.ratio(OURS, "mx.array(t)").median, 1.25))
    sizes = f"{NBYTES // 2**20} MiB, contiguous, on the host; lists {LIST_NBYTES // 2**20} MiB; MLX {mx.__version__}; one thread"
    report(__doc__.splitlines()[0], sizes, rows, targets, args)


if __name__ == "__main__":
    main()
