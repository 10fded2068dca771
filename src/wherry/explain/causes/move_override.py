"""move-override: a class moves its own tensors in `.cuda()` or `.to()`, and another of the two was called.

Why      `nn.Module.to` goes through `_apply` and never calls a `.cuda()` of yours, nor that of a submodule; a parent's
         `.to` calls neither `to` nor `cuda` of its children.
Fix      Register the tensors as buffers, then no override is needed; or override `_apply`, which all of them use.
Source   torch/nn/modules/module.py, `Module.to`, `Module.cuda`, `Module._apply`.
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.written import class_sources

_OVERRIDES = ("cuda", "to", "_apply", "cpu", "mps", "xpu")


def recognise(case: Case) -> Advice | None:
    link = case.plain_attribute
    if link is None:
        return _of_registered(case)
    if not tree.is_module(link.owner):
        return None
    attribute = str(link.step.key)
    for _, cls in class_sources(link.owner):
        for method in cls.body:
            if not isinstance(method, ast.FunctionDef) or method.name not in _OVERRIDES:
                continue
            text = case.text_up_to(link)
            moved = any(isinstance(n, ast.Attribute) and n.attr == attribute for n in ast.walk(method))
            if moved:
                why = (
                    f"{text} is a plain attribute that only {cls.name}.{method.name}() moves (line "
                    f"{method.lineno}), and {case.passed_by} "
                    f"does not call it: Module.to goes through _apply, and a parent's never calls its children's {method.name}()."
                )
            else:
                why = (
                    f"{cls.name}.{method.name}() (line {method.lineno}) is an override that leaves {text} out: "
                    "a plain attribute is moved by whoever thinks of it."
                )
            value = case.attribute_value(link)
            return Advice(why, f'Register it, and drop the override: self.register_buffer("{attribute}", {value})')
    return None


def _of_registered(case: Case) -> Advice | None:
    """A registered tensor that an override of `_apply`, which every move goes through, held back."""
    for link in reversed(case.links):
        for _, cls in class_sources(link.owner) if tree.is_module(link.owner) else ():
            method = next((m for m in cls.body if isinstance(m, ast.FunctionDef) and m.name == "_apply"), None)
            if method is not None:
                return Advice(
                    f"{case.name} is registered, but {cls.name}._apply() (line {method.lineno}) is an override, and all that "
                    "moves a module goes through _apply: it does not pass the move on.",
                    "Let the move through: return super()._apply(fn, recurse), and change only what has to be different.",
                )
    return None


CAUSE = Cause(
    "move-override",
    33,
    recognise,
    (
        Example(
            """
                class Net(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.anchors = torch.ones(3)
                        self.lin = torch.nn.Linear(3, 3)
                    def cuda(self):
                        self.anchors = self.anchors.cuda()
                        return super().cuda()
                    def forward(self, x):
                        return self.lin(x) * self.anchors
                Net().to(DEVICE)(torch.ones(3, device=DEVICE))
            """,
            "self.anchors",
            "self.anchors = torch",
        ),
    ),
)
