"""gradient-elsewhere: a gradient is not where its tensor is.

Why      A gradient must be on the device of what it is the gradient of. A `backward` of one's own that goes by way of NumPy or
         `.cpu()`, and a `p.grad` that was collected on the host, bring one from elsewhere.
Fix      Return it, or assign it, on the tensor's device: `grad_input.to(grad_output.device)`, `p.grad = g.to(p.device)`.
Source   torch/csrc/autograd/engine.cpp, `validate_outputs`; torch/csrc/autograd/python_variable.cpp, `THPVariable_set_grad`.
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import atom
from wherry.explain.message import Complaint


def recognise(case: Case) -> Advice | None:
    if case.complaint is not Complaint.GRADIENT:
        return None
    if case.name.endswith(".backward") and case.stray.node is not None:
        source = case.stray.frame.source
        function = source.function_of(case.stray.node)
        arguments = [a.arg for a in function.args.args] if function is not None else []
        incoming = arguments[1] if len(arguments) > 1 else "grad_output"
        returned = " ".join(source.text(case.stray.node).split())
        return Advice(
            f"{case.name}() returns a gradient on {case.device} for an input on {case.expected}.",
            f"Return it where the incoming gradient is: return {atom(returned)}.to({incoming}.device)",
        )
    node = case.scene.node
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and node.targets[0].attr == "grad":
        tensor = case.scene.here.source.text(node.targets[0].value)
        return Advice(
            f"{case.name} is on {case.device}, and {tensor} is on {case.expected}: a gradient must be where its tensor is.",
            f"Bring it there: {tensor}.grad = {case.moved(case.name, f'{tensor}.device')}",
        )
    return None


CAUSE = Cause(
    "gradient-elsewhere",
    12,
    recognise,
    (
        Example(
            """
                class Double(torch.autograd.Function):
                    @staticmethod
                    def forward(ctx, x):
                        return x * 2
                    @staticmethod
                    def backward(ctx, grad):
                        return grad.cpu() * 2
                x = torch.ones(2, device=DEVICE, requires_grad=True)
                Double.apply(x).sum().backward()
            """,
            "Double.backward",
            "return grad.cpu()",
        ),
        Example(
            """
                p = torch.ones(2, device=DEVICE, requires_grad=True)
                mean = torch.ones(2)
                p.grad = mean
            """,
            "mean",
            "mean = ",
        ),
    ),
)
