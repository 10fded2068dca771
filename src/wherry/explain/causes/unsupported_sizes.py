"""unsupported-sizes: adaptive pooling on MPS, where neither size is a multiple of the other.

Why      MPS computes adaptive pooling with one size of window and one stride. That is what it comes to where the sizes of the
         input are multiples of those wanted, or the other way round; else windows overlap and differ in size. An image of
         7 x 7 can be pooled to 1 x 1 there, and not to 3 x 3. No environment variable helps: the operator has a kernel.
Fix      Sizes that divide one another; else the CPU, for this call alone.
Source   aten/src/ATen/native/mps/operations/AdaptivePooling.mm; https://github.com/pytorch/pytorch/issues/96056
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import atom
from wherry.explain.message import Complaint
from wherry.explain.on_the_cpu import detour, holds_weights


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.SIZES:
        return None
    shape = None if case.stray.facts is None else case.stray.facts.shape
    # Only what stands in the call itself is what it pools; else the name is that of something before it.
    pooled = shape if _is_passed(case) and shape is not None and len(shape) > 2 else None
    have = "" if pooled is None else f" {case.name} is {' x '.join(map(str, pooled[-2:]))}."
    why = f"On {case.device.partition(':')[0]}, adaptive pooling takes only sizes of which one is a multiple of the other.{have}"
    there = detour(case) or f"{atom(case.name)}.cpu(), and move the result back"
    if holds_weights(case):
        there = "move what the pooling layer is given by .cpu(), and its result back; the layers around it stay where they are"
    return Advice(why, f"Choose sizes of which one divides the other, or compute it on the CPU: {there}")


def _is_passed(case: Case) -> bool:
    node = case.scene.node
    arguments = node.args if isinstance(node, ast.Call) else []
    return any(case.scene.here.source.text(each) == case.name for each in arguments)


CAUSE = Cause(
    "unsupported-sizes",
    10,
    recognise,
    (
        Example(
            """
                pool = torch.nn.AdaptiveAvgPool2d(3)
                maps = torch.ones(1, 4, 7, 7, device=DEVICE)
                pooled = pool(maps)
            """,
            "maps",
            "maps = ",
            device="mps",
        ),
        Example(
            """
                import torch.nn.functional as F
                maps = torch.ones(1, 4, 8, 2, device=DEVICE)
                pooled = F.adaptive_max_pool2d(maps, 4)
            """,
            "maps",
            "maps = ",
            device="mps",
        ),
    ),
)
