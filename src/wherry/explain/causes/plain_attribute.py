"""plain-attribute: a tensor is an attribute of a module, and neither a parameter nor a buffer.

Why      `Module.to` moves parameters and buffers, and nothing else. `self.pe = torch.zeros(n)` makes neither.
Fix      `self.register_buffer("pe", torch.zeros(n))`; with `persistent=False` where it shall not be saved. If it is to be
         trained, `nn.Parameter`.
Source   PyTorch documentation, "torch.nn.Module.register_buffer"; torch/nn/modules/module.py, `Module._apply`.
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.tree import MISSING


def recognise(case: Case) -> Advice | None:
    link = case.plain_attribute
    if link is None:
        return None
    attribute = str(link.step.key)
    text = case.text_up_to(link)
    if tree.class_attribute(link.owner, attribute) is not MISSING and attribute not in tree.instance_dict(link.owner):
        text = f"{link.name}.{attribute}"
    if case.links[-1] is not link:
        return _object(case, text)
    fix = f'Register it: self.register_buffer("{attribute}", {_value(case, attribute)})'
    if not case.made_at_start and case.factory is not None and case.origin is not None:
        made = case.with_device(case.factory, case.device_text)
        fix = f'Make it where the rest is, {made}, or register it in __init__: self.register_buffer("{attribute}", ...)'
    via = f" {case.stray.via} is computed from it." if case.stray.via is not None else ""
    return Advice(
        f"{text} is a plain attribute of {link.name}, neither a parameter nor a registered buffer, "
        f"so {case.passed_by} does not see it.{via}",
        fix,
    )


def _object(case: Case, text: str) -> Advice:
    held = case.links[-1].name
    return Advice(
        f"{text} is an object that is no module ({held}) and holds the tensor {case.name}; "
        f"{case.passed_by} moves parameters and buffers of "
        "modules, and does not look into other objects.",
        f"Keep its tensors as buffers of the module and build it from them when it is used, or move it by hand: "
        f"{case.path_text} = {case.path_text}.to({case.device_text})",
    )


def _value(case: Case, attribute: str) -> str:
    node = case.statement
    if node is not None and any(isinstance(n, ast.Attribute) and n.attr == attribute for n in ast.walk(node)):
        return case.statement_value or "..."
    return "..."


CAUSE = Cause(
    "plain-attribute",
    40,
    recognise,
    (
        Example(
            """
                class Net(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.lin = torch.nn.Linear(2, 2)
                        self.scale = torch.ones(2) * 3
                    def forward(self, x):
                        return self.lin(x) * self.scale
                Net().to(DEVICE)(torch.ones(2, device=DEVICE))
            """,
            "self.scale",
            "self.scale = ",
        ),
        Example(
            """
                class Net(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.pe = torch.ones(8, 2)
                        self.lin = torch.nn.Linear(2, 2)
                    def forward(self, x):
                        pe = self.pe[:len(x)] * 2
                        return self.lin(x + pe)
                Net().to(DEVICE)(torch.ones(3, 2, device=DEVICE))
            """,
            "self.pe",
            "self.pe = ",
        ),
    ),
)
