"""plain-container: modules, parameters or tensors in a plain list, tuple or dictionary of a module.

Why      `nn.Module` registers what is assigned to it directly: modules, parameters. It does not look into a list or a
         dictionary, so what is in there is not moved, not trained and not saved.
Fix      `nn.ModuleList`, `nn.ModuleDict`, `nn.ParameterList`, `nn.ParameterDict`; for plain tensors, `register_buffer`.
Source   PyTorch documentation, "torch.nn.ModuleList"; torch/nn/modules/module.py, `__setattr__`.
"""

from __future__ import annotations

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.tensors import facts_of
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    position = case.first_link(Kind.ATTRIBUTE)
    if position is None or position + 1 >= len(case.links):
        return None
    link, inside = case.links[position], case.links[position + 1]
    kinds = {dict: "dict", list: "list", tuple: "tuple", set: "set"}
    kind = next((word for cls, word in kinds.items() if tree.is_a(inside.owner, cls)), None)
    if kind is None:
        return None
    attribute = str(link.step.key)
    holds = _what(case, position + 1)
    if holds == "tensors" and _filled_later(case, link):
        return None  # a cache
    assert case.path is not None
    text = case.text_up_to(link)
    wanted = {"modules": "nn.Module", "parameters": "nn.Parameter"}.get(holds)
    inner = case.links[position + 2].owner if position + 2 < len(case.links) else None
    nested = any(tree.is_a(inner, cls) for cls in kinds) if inner is not None else False
    names = tree.is_a(inside.owner, dict) and type(inside.step.key) is not str
    if wanted is not None and (nested or names):
        why_not = "whose keys are strings: str(key)" if names else "and what is nested in it in another"
        fix = f"Hold them in an {wanted}{'Dict' if kind == 'dict' else 'List'}, {why_not}."
    elif wanted is not None:
        wanted += "Dict" if kind == "dict" else "List"
        fix = f"Hold them in an {wanted}: self.{attribute} = {wanted}({case.attribute_value(link)})"
    else:
        fix = (
            f'Register each as a buffer, self.register_buffer(f"{attribute.strip("_")}_{{i}}", tensor), and '
            "look it up when it is used."
        )
    return Advice(
        f"{text} is a plain {kind} of {holds}. A module registers what is assigned to it directly and does "
        f"not look into a {kind}, "
        f"so {case.passed_by} does not reach them.",
        fix,
    )


def _what(case: Case, position: int) -> str:
    """What the container holds: modules, parameters, or tensors."""
    for link in case.links[position + 1 :]:
        if tree.is_module(link.owner):
            return "modules"
    if (
        case.stray.value is not tree.MISSING
        and tree.is_tensor(case.stray.value)
        and facts_of(case.stray.value).is_parameter
    ):
        return "parameters"
    return "tensors"


def _filled_later(case: Case, link: object) -> bool:
    return case.maker_name not in ("__init__", None) and not case.made_at_start


CAUSE = Cause(
    "plain-container",
    30,
    recognise,
    (
        Example(
            """
                class Net(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.heads = [torch.nn.Linear(2, 1) for _ in range(2)]
                    def forward(self, x):
                        return sum(head(x) for head in self.heads)
                Net().to(DEVICE)(torch.ones(3, 2, device=DEVICE))
            """,
            "head.weight",
            "self.heads = ",
        ),
        Example(
            """
                class Net(torch.nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.gains = {'a': torch.nn.Parameter(torch.ones(2))}
                    def forward(self, x):
                        return x * self.gains['a']
                Net().to(DEVICE)(torch.ones(3, 2, device=DEVICE))
            """,
            "self.gains['a']",
            "self.gains = ",
        ),
    ),
)
