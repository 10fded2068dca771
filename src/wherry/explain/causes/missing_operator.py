"""missing-operator: the device has no kernel for an operator.

Why      Not every operator is written for every backend.
Fix      On Apple's GPUs `PYTORCH_ENABLE_MPS_FALLBACK=1`, set before torch is imported, runs it on the CPU instead; or move
         the operands of this one call to the CPU and the result back.
Source   PyTorch documentation, "MPS environment variables".
"""

from __future__ import annotations

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause
from wherry.explain.message import Complaint


def recognise(case: Case) -> Advice | None:
    read = case.scene.message
    if read.complaint is not Complaint.KERNEL:
        return None
    device = (read.others or "the device").lower()
    fix = "Do this one step on the CPU: move its operands there and the result back."
    if device == "mps":
        fix = "Set PYTORCH_ENABLE_MPS_FALLBACK=1 before torch is imported, or do this one step on the CPU."
    return Advice(f"{read.op or 'This operator'} has no kernel for {device}.", fix)


CAUSE = Cause("missing-operator", 10, recognise)
