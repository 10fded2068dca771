"""bound-before-move: a second name was given to a tensor, then the first one was moved.

Why      `.to` makes another tensor; `x = x.to(device)` binds x to it. A name that was bound to x before still names the old one.
Fix      Move first, then give it its second name.
Source   PyTorch documentation, "torch.Tensor.to".
"""

from __future__ import annotations

import ast

from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.explain.idioms import moves


def recognise(case: Case) -> Advice | None:
    name = case.stray.via or case.name
    frame = case.stray.frame
    if not name.isidentifier():
        return None
    for bound in reversed(frame.source.of_name(name, frame.function, before=frame.line + 1)):
        other = bound.value
        if bound.how != "=" or not isinstance(other, ast.Name):
            continue
        for moved in frame.source.of_name(other.id, frame.function):
            if moved.node.lineno > bound.node.lineno and _moves_itself(moved.value, other.id):
                text = frame.source.text(moved.node)
                return Advice(
                    f"{name} was bound to {other.id} (line {bound.node.lineno}) before {text} (line {moved.node.lineno}) made "
                    f"{other.id} a copy on {case.expected}, so {name} still names the tensor on {case.device}.",
                    f"Move first, then bind: put {name} = {other.id} below {text}.",
                )
    return None


def _moves_itself(node: ast.AST | None, name: str) -> bool:
    return moves(node) and any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node or ast.Pass()))


CAUSE = Cause(
    "bound-before-move",
    22,
    recognise,
    (
        Example(
            """
                def main():
                    prompt = torch.ones(2, 2)
                    seen = prompt
                    prompt = prompt.to(DEVICE)
                    return torch.cat([seen, prompt])
                main()
            """,
            "seen",
            "prompt = torch",
        ),
    ),
)
