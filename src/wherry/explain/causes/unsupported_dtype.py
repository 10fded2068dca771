"""unsupported-dtype: the device has no such dtype: float64 on Apple's GPUs, complex128, float8.

Why      Metal has no 64-bit floating point. Such tensors mostly appear by accident: NumPy computes in float64 by default, and
         `torch.from_numpy`, `torch.tensor(array)` and pandas keep it; `.double()` and `dtype=torch.float64` ask for it.
Fix      Make it float32 before it moves: `.float()`, `array.astype(np.float32)`, `dtype=torch.float32`.
Source   aten/src/ATen/mps/EmptyTensor.cpp; PyTorch documentation, "MPS backend".
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.message import Complaint

_NARROWER = {"float64": "float32", "fp64": "float32", "ComplexDouble": "complex64", "fp16": "float32"}


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.DTYPE:
        return None
    wide = case.scene.message.dtype or "float64"
    narrow = _NARROWER.get(wide, "float32")
    shown = {"ComplexDouble": "complex128", "fp64": "float64"}.get(wide, wide)
    why = f"{case.name} is {shown}, which {case.expected} does not have."
    if case.making is not None:
        made = ast.dump(case.making)
        if "from_numpy" in made or "'np'" in made or "'numpy'" in made:
            why += " NumPy computes in float64 unless told otherwise, and torch keeps the dtype of an array."
    node = case.scene.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "double":
        return Advice(
            why, f"Stay in float32: leave out .double(), or bring the tensor back first: {case.name}.cpu().double()"
        )
    if isinstance(node, ast.Call) and any(keyword.arg == "dtype" for keyword in node.keywords):
        return Advice(why, f"Ask for {narrow}: dtype=torch.{narrow}.")
    if case.stray.found is not None and case.stray.found.steps:
        root = case.stray.found.root
        return Advice(why, f"Convert before moving: {root}.float().to({case.device_text})")
    if type(case.stray.value).__module__ == "numpy":
        return Advice(why, f"Convert the array first: {case.name}.astype(np.{narrow})")
    cast = ".float()" if narrow == "float32" else f".to(torch.{narrow})"
    place = f"{case.name}{cast}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "mps"):
        source = case.scene.here.source
        rest = ", ".join(source.text(a) for a in (*node.args, *node.keywords))
        place += f".{node.func.attr}({rest})"
    return Advice(why, f"Make it {narrow} before it moves: {place}")


CAUSE = Cause(
    "unsupported-dtype",
    10,
    recognise,
    (
        Example(
            """
                import numpy as np
                batch = torch.from_numpy(np.ones(3))
                batch = batch.to(DEVICE)
            """,
            "batch",
            "batch = torch.from_numpy",
            device="mps",
        ),
        Example(
            """
                steps = torch.linspace(0, 1, 5, dtype=torch.float64, device=DEVICE)
            """,
            "torch.linspace(0, 1, 5, dtype=torch.float64, device=DEVICE)",
            "steps = ",
            device="mps",
        ),
        Example(
            """
                loss = torch.ones(3, device=DEVICE).mean()
                total = loss.double()
            """,
            "loss",
            "loss = ",
            device="mps",
        ),
    ),
)
