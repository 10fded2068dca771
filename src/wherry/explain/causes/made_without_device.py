"""made-without-device: a tensor is made while the program runs, and nobody says where.

Why      `torch.zeros(n)`, `torch.arange(n)`, `torch.tensor(values)` make CPU tensors, each time, wherever the rest is.
Fix      Say where: `device=x.device`, or `torch.zeros_like(x)`, `x.new_zeros(n)`.
Source   PyTorch documentation, "Creation Ops", on `device`: "uses the current device for the default tensor type".
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example


def recognise(case: Case) -> Advice | None:
    if not case.on_host or case.factory is None or case.origin is None or case.maker is None:
        return None
    if (
        case.maker_name in ("__init__", "__post_init__", "__len__", "__getitem__")
        and case.maker is not case.scene.here.function
    ):
        return None
    if isinstance(case.making, ast.expr) and case.origin.how == "for":
        return None
    inside = case.maker is case.scene.here.function
    name = getattr(case.maker, "name", "the function")
    if name in ("main", "<module>") and not inside:
        return None
    where = case.where(case.origin.site)
    written = " ".join(case.origin.source.text(case.factory).split())
    shown = written if len(written) <= 60 else f"{case.origin.source.text(case.factory.func)}(...)"
    device = case.device_in_maker
    named = case.stray.via or case.name
    subject = f"{named} is made" if named not in shown else "It is made"
    return Advice(
        f"{subject} in {name}() by {shown} ({where}) without device=, so every call makes a new tensor on "
        f"{case.device}, wherever its input is.",
        f"Make it where the data is: {case.with_device(case.factory, device)}"
        if device is not None
        else f"Move it to the data, {case.moved(named)}, or pass the device to {name}() and make it there: device=device",
    )


CAUSE = Cause(
    "made-without-device",
    60,
    recognise,
    (
        Example(
            """
                def attend(x):
                    mask = torch.ones(x.shape[0], 3).tril()
                    return x * mask
                attend(torch.ones(3, device=DEVICE))
            """,
            "mask",
            "mask = ",
        ),
    ),
)
