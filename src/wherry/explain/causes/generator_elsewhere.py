"""generator-elsewhere: random numbers are wanted on one device from the generator of another.

Why      A `torch.Generator` belongs to the device it was made for, by default the CPU, and has no `.to`. It fills tensors of
         its own device only.
Fix      Draw on the generator's device and move the result: the numbers stay the same on every backend. Or make a generator
         for the device, which gives other numbers.
Source   aten/src/ATen/core/Generator.h, `check_generator`; PyTorch documentation, "torch.Generator".
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.message import Complaint

_DRAWS = tuple(f"torch.{name}" for name in ("rand", "randn", "randint", "randperm", "normal"))


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.GENERATOR:
        return None
    made = f"torch.Generator({case.device_text})"
    other = f"make the generator for the device, {made}, which gives other numbers"
    node = case.scene.node
    fix = other[0].upper() + other[1:] + "."
    if (
        isinstance(node, ast.Call)
        and any(keyword.arg == "device" for keyword in node.keywords)
        and case.device == "cpu"
    ):
        source = case.scene.here.source
        device = next(source.text(k.value) for k in node.keywords if k.arg == "device")
        arguments = [*node.args, *(k for k in node.keywords if k.arg != "device")]
        drawn = f"{source.text(node.func)}({', '.join(source.text(a) for a in arguments)}).to({device})"
        fix = f"Draw on the CPU and move the result: {drawn}. Or {other}."
    elif case.expected == "cpu" and not (
        isinstance(node, ast.Call) and case.scene.here.source.text(node.func) in _DRAWS
    ):
        fix = "Make the generator on the CPU, where the drawing is done: torch.Generator()"
    elif (
        isinstance(node, ast.Call)
        and case.expected == "cpu"
        and not any(keyword.arg == "device" for keyword in node.keywords)
    ):
        source = case.scene.here.source
        drawn = ", ".join(source.text(a) for a in (*node.args, *node.keywords))
        fix = f"Draw where the generator is: {source.text(node.func)}({drawn}, device={case.name}.device)"
    return Advice(
        f"{case.name} is a random generator of {case.device}, which cannot fill a tensor on {case.expected}; "
        "a torch.Generator has a fixed device and cannot be moved.",
        fix,
    )


CAUSE = Cause(
    "generator-elsewhere",
    10,
    recognise,
    (
        Example(
            """
                rng = torch.Generator().manual_seed(3)
                noise = torch.randn(4, device=DEVICE, generator=rng)
            """,
            "rng",
            "rng = ",
        ),
        Example(
            """
                rng = torch.Generator().manual_seed(3)
                weights = torch.ones(4, device=DEVICE)
                picked = torch.multinomial(weights, 2, generator=rng)
            """,
            "rng",
            "rng = ",
        ),
    ),
)
