"""needed-on-host: an argument that the host reads was moved, and must not be.

Why      `pack_padded_sequence` reads the lengths on the host to plan the packing, `tensor_split` its indices to know how many
         pieces there are. They must be on the CPU, and a loop that moves the whole batch moves them too.
Fix      `lengths.cpu()` in the call, or leave them on the CPU.
Source   aten/src/ATen/native/PackedSequence.cpp; https://github.com/pytorch/pytorch/issues/43227
"""

from __future__ import annotations

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import atom
from wherry.explain.message import Complaint


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.HOST_ONLY:
        return None
    lengths = case.scene.message.argument == "lengths"
    what = "is read on the host to plan the packing" if lengths else "is read on the host"
    return Advice(
        f"{case.name} {what}: it must stay on the CPU, and was moved to {case.device} with the rest.",
        f"Pass it from the host: {atom(case.name)}.cpu()",
    )


CAUSE = Cause(
    "needed-on-host",
    10,
    recognise,
    (
        Example(
            """
                from torch.nn.utils.rnn import pack_padded_sequence
                batch = torch.ones(2, 3, 4, device=DEVICE)
                lengths = torch.tensor([3, 2]).to(DEVICE)
                pack_padded_sequence(batch, lengths, batch_first=True)
            """,
            "lengths",
            "lengths = ",
        ),
    ),
)
