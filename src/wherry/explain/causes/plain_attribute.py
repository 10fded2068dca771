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
        return _of_class(case)
    attribute = str(link.step.key)
    text = case.text_up_to(link)
    if tree.class_attribute(link.owner, attribute) is not MISSING and attribute not in tree.instance_dict(link.owner):
        text = f"{link.name}.{attribute}"
    if case.links[-1] is not link:
        return _object(case, text)
    fix = f'Register it: self.register_buffer("{attribute}", {case.attribute_value(link)})'
    if not case.made_at_start and case.factory is None:
        after = case.mover.text if case.mover is not None else "the move"
        fix = f"Make it anew after {after}, or move it where it is used: {case.moved(case.name)}"
    if not case.made_at_start and case.factory is not None and case.origin is not None:
        made = case.with_device(case.factory, case.device_text)
        fix = f'Make it where the rest is, {made}, or register it in __init__: self.register_buffer("{attribute}", ...)'
    via = f" {case.stray.via} is computed from it." if case.stray.via is not None else ""
    return Advice(
        f"{text} is a plain attribute of {link.name}, neither a parameter nor a registered buffer, "
        f"so {case.passed_by} does not see it.{via}",
        fix,
    )


def _of_class(case: Case) -> Advice | None:
    """A tensor in the body of a module's class."""
    node = case.stray.node
    owner = case.stray.frame.value(node.value) if isinstance(node, ast.Attribute) else MISSING
    if not isinstance(node, ast.Attribute) or owner is MISSING or not tree.is_module(owner):
        return None
    if tree.class_attribute(owner, node.attr) is not case.stray.value:
        return None
    name = tree.class_name(owner)
    return Advice(
        f"{name}.{node.attr} is a tensor in the body of the class, made once and shared by all its objects; "
        f"{case.passed_by} moves parameters and buffers of one object.",
        f"Move it where it is used, {case.moved(case.name)}, or register it in __init__: "
        f'self.register_buffer("{node.attr.lower()}", {case.statement_value or "..."})',
    )


def _object(case: Case, text: str) -> Advice:
    held = case.links[-1].name
    if held in ("list", "dict", "tuple", "set", "deque", "OrderedDict", "defaultdict"):
        filled = (
            f" It was filled in {case.maker_name}(), when everything was on {case.device}." if case.maker_name else ""
        )
        return Advice(
            f"{text} is a plain {held} of tensors; {case.passed_by} moves parameters and buffers, and does not look into "
            f"a {held}.{filled}",
            f"Fill it anew when the device differs, or move what is in it where it is used: {case.moved(case.name)}",
        )
    return Advice(
        f"{text} is an object that is no module ({held}) and holds the tensor {case.name}; "
        f"{case.passed_by} moves parameters and buffers of "
        "modules, and does not look into other objects.",
        f"Keep its tensors as buffers of the module and build it from them when it is used, or move it by hand: "
        f"{case.path_text} = {case.path_text}.to({case.device_named})",
    )


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
