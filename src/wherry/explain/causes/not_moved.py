"""not-moved: the tensor is not where the rest is, and nothing more particular is known.

Why      Operations need their operands on one device, and this one was made or left elsewhere.
Fix      Move it where it is used, or make it there.
Source   PyTorch documentation, "Tensor Attributes", on `torch.device`.
"""

from __future__ import annotations

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause


def recognise(case: Case) -> Advice:
    made = f" since {case.where(case.origin.site)}" if case.origin is not None else ""
    if case.stray.expected == "cpu":
        return Advice(
            f"{case.name} is on {case.device}{made}, and is needed on the CPU here.",
            f"Bring it back: {case.name}.cpu()",
        )
    return Advice(
        f"{case.name} is on {case.device}{made}, and what it meets here is on {case.expected}.",
        f"Move it: {case.moved(case.name)}",
    )


CAUSE = Cause("not-moved", 99, recognise)
