"""absent-device: the program asks for a device that this machine does not have, by a name written into it.

Why      `.cuda()`, `device="cuda"` and a checkpoint saved on a GPU name one backend. On a Mac, an Intel GPU or a CPU there is
         none of that name; PyTorch does not translate.
Fix      Follow the data (`x.device`), or choose the device once at the top (`wherry.pick()`) and pass it on.
Source   torch/cuda/__init__.py, `_lazy_init`; PyTorch documentation, "torch.load", for `map_location`.
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import factory_in, moves
from wherry.explain.message import Complaint


def recognise(case: Case) -> Advice | None:
    read = case.scene.message
    if read.complaint is Complaint.CHECKPOINT:
        return Advice(
            f"The checkpoint was saved on a {read.found or 'device'} that is not here, and torch.load puts "
            "tensors back where they were.",
            "Say where they go: torch.load(path, map_location=device)",
        )
    if read.complaint is Complaint.ORDINAL:
        return Advice(
            f"{case.name} is sent to a device index that does not exist here: fewer devices are visible "
            "than the program counts on.",
            "Count from 0 to torch.accelerator.device_count() - 1, or take the current device, "
            'device="cuda". In a rehearsal there '
            "may be more: wherry run --count 2.",
        )
    if read.complaint is not Complaint.ABSENT:
        return None
    named = read.found or "cuda"
    rest = f" while the rest is on {case.expected}" if case.stray.expected else ""
    why = f"{named} is written into this line{rest}; there is no {named} here."
    device = case.device_beside if case.stray.expected else "wherry.pick()"
    device = _beside_in_call(case) or device
    node = case.scene.node
    call = next((n for n in ast.walk(node) if moves(n)), None) if node is not None else None
    source = case.scene.here.source
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        factory = factory_in(call.func.value)
        if factory is not None and factory is call.func.value:
            text = " ".join(source.text(factory).split())
            return Advice(
                why,
                "Make it where the data is: "
                f"{text[:-1].rstrip()}{', ' if factory.args or factory.keywords else ''}device={device})",
            )
        return Advice(why, f"Follow the data: {' '.join(source.text(call.func.value).split())}.to({device})")
    return Advice(why, f"Name no backend: use {device} as the device, chosen once with wherry.pick().")


def _beside_in_call(case: Case) -> str | None:
    """A tensor that the line itself asks for its shape: it is where the rest is."""
    node = case.scene.node
    if node is None:
        return None
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in ("shape", "dtype") and isinstance(part.value, ast.Name):
            return f"{part.value.id}.device"
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr in ("size", "numel")
            and isinstance(part.func.value, ast.Name)
        ):
            return f"{part.func.value.id}.device"
    return None


CAUSE = Cause(
    "absent-device",
    10,
    recognise,
    (
        Example(
            """
                x = torch.ones(2, 3, device=DEVICE)
                noise = torch.randn(x.shape).cuda()
                print(x + noise)
            """,
            "torch.randn(x.shape)",
            "noise = ",
            device="mps",
        ),
        Example(
            """
                labels = torch.tensor([1, 2])
                labels = labels.cuda()
            """,
            "labels",
            "labels = torch",
            device="xpu",
        ),
    ),
)
