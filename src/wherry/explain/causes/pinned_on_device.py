"""pinned-on-device: a tensor that is on a device already was to be pinned.

Why      Pinning locks pages of host memory, so that they can be copied while the host runs on. What is on the device has no
         such pages. A dataset that returns device tensors and a loader with `pin_memory=True` meet like this.
Fix      Keep the dataset on the CPU, and move each batch after the loader; or `pin_memory=False`.
Source   PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory()".
"""

from __future__ import annotations

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.message import Complaint


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.PINNING:
        return None
    return Advice(
        f"{case.name} is on {case.device}, and only host memory can be pinned.",
        "Keep the data on the CPU until it is pinned and move it after that, or leave out pin_memory.",
    )


CAUSE = Cause(
    "pinned-on-device",
    10,
    recognise,
    (
        Example(
            """
                data = torch.ones(3, device=DEVICE)
                data.pin_memory()
            """,
            "data",
            "data = ",
        ),
    ),
)
