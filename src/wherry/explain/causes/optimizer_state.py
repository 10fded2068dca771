"""optimizer-state: what the optimizer remembers of a parameter is not where the parameter is.

Why      An optimizer makes its state beside the parameters as they are at that moment: Adagrad in its constructor, others at
         the first step or when a checkpoint is loaded. `Module.to` moves parameters, and knows nothing of optimizers.
Fix      Move the model first, then construct the optimizer and load its state.
Source   torch/optim/adagrad.py; PyTorch documentation, "torch.optim", on constructing it after `.cuda()`.
"""

from __future__ import annotations

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    position = case.first_link(Kind.STATE, tree.is_optimizer)
    if position is None:
        return None
    assert case.path is not None
    optimizer = case.links[position].name
    root = case.path.prefix(position)
    key = case.path.steps[-1].key
    made = case.origin.site if case.origin is not None else None
    when = f" at {case.where(made)}" if made is not None else ""
    made_by = case.making_text or ""
    if "load_state_dict" in made_by or "torch.load" in made_by:
        return Advice(
            f"The {key} of {optimizer} was loaded{when} onto {case.device}, and its parameter is on {case.expected}.",
            f"Load the state after the model has moved: {root}.load_state_dict(...) below {case.passed_by}.",
        )
    return Advice(
        f"{optimizer} made its {key} beside the parameters{when}, when they were still on {case.device}; "
        f"{case.passed_by} moved the parameters and not the optimizer's state.",
        f"Move the model before the optimizer is constructed: put {case.mover.text if case.mover else 'model.to(device)'} above "
        f"{root} = ...",
    )


CAUSE = Cause(
    "optimizer-state",
    26,
    recognise,
    (
        Example(
            """
                net = torch.nn.Linear(2, 1)
                opt = torch.optim.Adagrad(net.parameters())
                net.to(DEVICE)
                net(torch.ones(3, 2, device=DEVICE)).sum().backward()
                opt.step()
            """,
            "opt.state[p]['sum']",
            "opt = ",
        ),
    ),
)
