"""Many small tensors to an accelerator as one copy.

A copy from pageable memory is a call of the driver and a wait each, whatever its size: a wait for all that the stream has
queued before (`memcpy_and_sync`). So small tensors are laid one behind
another in pinned memory, which the device reads by itself while the host goes on, and are told apart again there: by one op
for all of them, into storages of their own, so that none keeps the memory of the others alive.

Whether that pays depends on the driver: benchmarks/packed_copies.py measures it where there is one.

Source: aten/src/ATen/native/cuda/Copy.cu, CachingHostAllocator (torch 2.13): pinned memory that a queued copy reads is not
given out again before the copy is done.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wherry import dispatch
from wherry.units import KIB

FEWEST = 16
"""From how many tensors on they are packed."""
LARGEST = 64 * KIB
"""Of one tensor. What is larger is worth a copy of its own."""


def are_worth_it(tensors: list[Tensor]) -> bool:
    """Whether some tensors in pageable memory are better sent as one."""
    return len(tensors) >= FEWEST and all(tensor.nbytes <= LARGEST for tensor in tensors)


def copied(tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Copies on a device of contiguous tensors on the host, which may be used on the current stream at once."""
    by_dtype: dict[torch.dtype, list[int]] = {}
    for position, tensor in enumerate(tensors):
        by_dtype.setdefault(tensor.dtype, []).append(position)
    copies = [torch.empty_like(tensor, device=device) for tensor in tensors]
    for dtype, positions in by_dtype.items():
        sizes = [tensors[position].numel() for position in positions]
        buffer = torch.empty(sum(sizes), dtype=dtype, device="cpu", pin_memory=True)
        torch.cat([tensors[position].view(-1) for position in positions], out=buffer)
        there = buffer.to(device, non_blocking=True)
        dispatch.copy_each([copies[position].view(-1) for position in positions], list(there.split(sizes)))
    return copies
