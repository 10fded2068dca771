"""unsupported-dtype: the device has no such dtype, or does not compute in it: float64 on Apple's GPUs, complex128, float8.

Why      Metal has no 64-bit floating point, and neither has Intel's Arc of the first generation, whose kernels copy, cast and
         compare it and do no more: the error comes where something is computed. Such tensors mostly appear by accident: NumPy
         computes in float64 by default, and `torch.from_numpy`, `torch.tensor(array)` and pandas keep it; `.double()` and
         `dtype=torch.float64` ask for it. `torch.amp.GradScaler` computes a reciprocal in it, except on MPS.
Fix      Make it float32 before it moves: `.float()`, `array.astype(np.float32)`, `dtype=torch.float32`. Autocast to bfloat16
         needs no GradScaler.
Source   aten/src/ATen/mps/EmptyTensor.cpp; PyTorch documentation, "MPS backend"; torch/amp/grad_scaler.py, `unscale_`;
         https://github.com/intel/torch-xpu-ops/issues/1742 and https://github.com/pytorch/pytorch/issues/147731
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.message import HELD, Complaint

_NARROWER = {"float64": "float32", "fp64": "float32", "ComplexDouble": "complex64", "fp16": "float32"}


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.DTYPE:
        return None
    wide = case.scene.message.dtype or "float64"
    narrow = _NARROWER.get(wide, "float32")
    shown = {"ComplexDouble": "complex128", "fp64": "float64"}.get(wide, wide)
    # What is there already was not refused when it came.
    holds = case.scene.message.dtype in HELD
    why = f"{case.name} is {shown}, " + (
        f"in which {case.expected} does not compute." if holds else f"which {case.expected} does not have."
    )
    if case.making is not None:
        made = ast.dump(case.making)
        if "from_numpy" in made or "'np'" in made or "'numpy'" in made:
            why += " NumPy computes in float64 unless told otherwise, and torch keeps the dtype of an array."
    node = case.scene.node
    if holds and (inside := _inside(case)) is not None:
        return inside
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
    if holds:
        return Advice(why, f"Make it {narrow} where it is made, or here: {place}")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "mps"):
        source = case.scene.here.source
        rest = ", ".join(source.text(a) for a in (*node.args, *node.keywords))
        place += f".{node.func.attr}({rest})"
    return Advice(why, f"Make it {narrow} before it moves: {place}")


def _inside(case: Case) -> Advice | None:
    """For what becomes float64 on the device, in the failing line."""
    node, here = case.stray.node, case.scene.here
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "double":
        tensor = here.source.text(node.func.value)
        return Advice(
            f"{case.name} makes {tensor} float64, in which {case.expected} does not compute.",
            f"Stay in float32: leave out .double(), or compute it on the CPU: {tensor}.cpu().double()",
        )
    failed = case.scene.node
    attribute = failed.func if isinstance(failed, ast.Call) else None
    if isinstance(attribute, ast.Attribute) and attribute.value is node and attribute.attr in ("step", "unscale_"):
        return Advice(
            f"{case.name} computes the reciprocal of its scale in float64, in which {case.expected} does not compute.",
            f"Use bfloat16, which needs no {case.name}: torch.autocast({case.expected.partition(':')[0]!r}, torch.bfloat16)",
        )
    return None


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
        Example(
            """
                import numpy as np
                batch = torch.from_numpy(np.ones(3)).to(DEVICE)
                shifted = batch - 1
            """,
            "batch",
            "batch = torch.from_numpy",
            device="xpu",
            profile="a770",
        ),
        Example(
            """
                batch = torch.ones(3, dtype=torch.float64, device=DEVICE)
                total = batch.sum()
            """,
            "batch",
            "batch = ",
            device="xpu",
            profile="a770",
        ),
        Example(
            """
                model = torch.nn.Linear(2, 2, device=DEVICE)
                optimizer = torch.optim.SGD(model.parameters())
                scaler = torch.amp.GradScaler(DEVICE)
                scaler.scale(model(torch.ones(2, device=DEVICE)).sum()).backward()
                scaler.step(optimizer)
            """,
            "scaler",
            "scaler = ",
            device="xpu",
            profile="a770",
        ),
    ),
)
