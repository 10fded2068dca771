"""From how many small tensors on does one packed copy to a GPU pay?

    python benchmarks/packed_copies.py --check

Needs a CUDA or ROCm device. Compares `Tensor.to` one by one, from pageable memory, with what wherry.move does: everything in
one pinned buffer, one copy, one op that tells them apart again (src/wherry/move/packed.py, whose thresholds this is for).
Both wait for the device at the end.

Promised: from packed.FEWEST tensors on, at most 1.0 of the time of one by one.
"""

from __future__ import annotations

import torch
from measure.rounds import Target, clock, parser, play, report

from wherry.move import packed

if not torch.cuda.is_available():
    print("needs a CUDA or ROCm device: what a copy costs is the driver's to say")
    raise SystemExit(0)

DEVICE = torch.device("cuda", 0)
COUNTS = (4, packed.FEWEST, 64, 256)
SIZES = (32, 1024, packed.LARGEST // 4)  # elements of float32


def one_by_one(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    moved = [tensor.to(DEVICE) for tensor in tensors]
    torch.cuda.synchronize()
    return moved


def as_one(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    moved = packed.copied(tensors, DEVICE)
    torch.cuda.synchronize()
    return moved


def main() -> None:
    args = parser(__doc__.splitlines()[0], rounds=9).parse_args()
    rows, targets = [], []
    for numel in SIZES:
        for count in COUNTS:
            tensors = [torch.randn(numel) for _ in range(count)]
            for sent, arrived in zip(tensors, as_one(tensors), strict=True):
                assert arrived.device == DEVICE
                assert arrived.cpu().equal(sent)
            rounds = play(
                {
                    "one by one": lambda tensors=tensors: clock(lambda: one_by_one(tensors), 20),
                    "packed": lambda tensors=tensors: clock(lambda: as_one(tensors), 20),
                },
                args.rounds,
            )
            ratio = rounds.ratio("packed", "one by one")
            rows += [
                {
                    "tensors": count,
                    "bytes each": numel * 4,
                    "way": way,
                    "us": rounds.seconds(way) * 1e6,
                    "x one by one": rounds.ratio(way, "one by one"),
                }
                for way in ("one by one", "packed")
            ]
            if count >= packed.FEWEST:
                targets.append(Target(f"{count} tensors of {numel * 4:,} bytes", ratio.median, 1.0))
    report(
        __doc__.splitlines()[0], f"float32 from pageable memory to {torch.cuda.get_device_name(0)}", rows, targets, args
    )


if __name__ == "__main__":
    main()
