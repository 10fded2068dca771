"""numpy-of-device-tensor: NumPy was handed a tensor that is on a device.

Why      NumPy arrays view host memory. `Tensor.numpy()` shares memory with the tensor, so it exists on the CPU only; so do
         `np.asarray(tensor)`, `np.array([tensors])` and what calls them: matplotlib, sklearn, pandas.
Fix      Bring it back first: `.cpu()`, and before that `.detach()` where autograd still watches it.
Source   torch/csrc/utils/tensor_numpy.cpp; PyTorch documentation, "torch.Tensor.numpy".
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import atom
from wherry.explain.message import Complaint


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.NUMPY:
        return None
    watched = case.stray.facts is not None and (case.stray.facts.has_history or case.stray.facts.is_parameter)
    back = ".detach().cpu()" if watched else ".cpu()"
    node = case.scene.node
    code = f"{atom(case.name)}{back}"
    if case.links and tree.is_a(case.links[-1].owner, list) and case.stray.found is not None and case.stray.found.steps:
        whole = case.stray.found.prefix(len(case.stray.found.steps) - 1)
        return Advice(
            f"{whole} holds tensors on {case.device}, and NumPy can only view host memory: they must come back.",
            f"Bring them to the host first: torch.stack({whole}){back}.numpy()",
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy":
        code += ".numpy()"
    return Advice(
        f"{case.name} is on {case.device}, and NumPy can only view host memory: here a tensor must come back, "
        "rather than move to the device.",
        f"Copy it to the host first: {code}",
    )


CAUSE = Cause(
    "numpy-of-device-tensor",
    10,
    recognise,
    (
        Example(
            """
                scores = torch.ones(3, device=DEVICE)
                print(scores.numpy())
            """,
            "scores",
            "scores = ",
        ),
        Example(
            """
                import numpy as np
                model = torch.nn.Linear(2, 1).to(DEVICE)
                out = model(torch.ones(4, 2, device=DEVICE))
                print(np.asarray(out))
            """,
            "out",
            "out = ",
        ),
    ),
)
