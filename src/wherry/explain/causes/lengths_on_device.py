"""lengths-on-device: the lengths of sequences were moved, and must not be.

Why      `pack_padded_sequence` reads the lengths on the host to plan the packing, so it wants a CPU int64 tensor. A loop that
         moves the whole batch moves them too.
Fix      `lengths.cpu()` in the call, or leave them on the CPU.
Source   aten/src/ATen/native/PackedSequence.cpp; https://github.com/pytorch/pytorch/issues/43227
"""

from __future__ import annotations

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.message import Complaint


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.LENGTHS:
        return None
    return Advice(
        f"{case.name} holds lengths, which are read on the host to plan the packing: they must stay on the CPU, "
        f"and were moved to {case.device} with the rest of the batch.",
        f"Pass them from the host: {case.name}.cpu()",
    )


CAUSE = Cause(
    "lengths-on-device",
    10,
    recognise,
    (
        Example(
            "from torch.nn.utils.rnn import pack_padded_sequence\n"
            "batch = torch.ones(2, 3, 4, device=DEVICE)\nlengths = torch.tensor([3, 2]).to(DEVICE)\n"
            "pack_padded_sequence(batch, lengths, batch_first=True)",
            "lengths",
            "lengths = ",
        ),
    ),
)
