"""custom-move: an object's own `.to` leaves one of its tensors out.

Why      A dataclass or a plain class that holds tensors needs a `.to` of its own, which lists what it moves. A field that was
         added later, or forgotten, stays.
Fix      Move the field there too; or go through all fields: `dataclasses.replace(self, **{name: value.to(device) ...})`.
Source   Python documentation, "dataclasses.replace".
"""

from __future__ import annotations

import ast

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.written import class_sources
from wherry.tree import Kind

_MOVERS = ("to", "cuda", "to_device", "move", "move_to", "to_gpu", "send_to", "_to", "place", "load_to")


def recognise(case: Case) -> Advice | None:
    for link in reversed(case.links):
        if link.step.kind is not Kind.ATTRIBUTE or tree.is_module(link.owner):
            continue
        for _, cls in class_sources(link.owner):
            method = next((m for m in cls.body if isinstance(m, ast.FunctionDef) and m.name in _MOVERS), None)
            if method is None:
                continue
            field = str(link.step.key)
            device = method.args.args[1].arg if len(method.args.args) > 1 else case.device_text
            mentioned = any(isinstance(n, ast.Attribute) and n.attr == field for n in ast.walk(method)) or any(
                isinstance(n, ast.keyword) and n.arg == field for n in ast.walk(method)
            )
            if case.links[-1] is not link:
                return Advice(
                    f"{cls.name}.{method.name}() (line {method.lineno}) does not move what is in the field {field}, "
                    f"so {case.name} stays on {case.device}.",
                    f"Move what is in {field} there too.",
                )
            how = "does not move" if mentioned else "leaves out"
            return Advice(
                f"{cls.name}.{method.name}() (line {method.lineno}) {how} the field {field}, so "
                f"{case.name} stays on {case.device}.",
                f"Move it there too: {field}=self.{field}.to({device})"
                if _builds_new(method)
                else f"Move it there too: self.{field} = self.{field}.to({device})",
            )
    return None


def _builds_new(method: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Return) and isinstance(n.value, ast.Call) for n in ast.walk(method))


CAUSE = Cause(
    "custom-move",
    54,
    recognise,
    (
        Example(
            """
                from dataclasses import dataclass
                @dataclass
                class Batch:
                    x: torch.Tensor
                    mask: torch.Tensor
                    def to(self, device):
                        return Batch(self.x.to(device), self.mask)
                batch = Batch(torch.ones(3), torch.ones(3)).to(DEVICE)
                print(batch.x * batch.mask)
            """,
            "batch.mask",
            "batch = ",
        ),
    ),
)
