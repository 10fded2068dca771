"""plain-object: an object that is no module holds the tensor: a distribution, a normaliser, a sampler, a buffer of samples.

Why      `Module.to` moves modules. `torch.distributions` objects, helper classes, lists of statistics have no `.to`, and hold
         what they were given where it was.
Fix      Give the object its tensors on the device, or make it a module that registers them as buffers.
Source   https://github.com/pytorch/pytorch/issues/7795 (distributions have no `.to`).
"""

from __future__ import annotations

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example
from wherry.tree import Kind


def recognise(case: Case) -> Advice | None:
    link = next(
        (
            link
            for link in case.links
            if link.step.kind is Kind.ATTRIBUTE and not tree.is_module(link.owner) and not tree.is_a(link.owner, tuple)
            and not tree.is_optimizer(link.owner)
        ),
        None,
    )  # fmt: skip
    if link is None:
        return None
    position = case.links.index(link)
    assert case.path is not None
    holder = case.path.prefix(position)
    what = f"a {link.name}"
    if type(link.owner).__module__.startswith("torch.distributions"):
        return Advice(
            f"{holder} is {what} distribution built from tensors on {case.device}; distributions are no modules and have no .to.",
            f"Build it from parameters on the device: {case.with_device(case.factory, case.device_in_maker)}"
            if case.factory is not None and case.device_in_maker is not None
            else "Keep its parameters as buffers of a module, and build the distribution from them when it is used.",
        )
    made = f" ({case.where(case.origin.site)})" if case.origin is not None else ""
    field = case.path.prefix(position + 1)
    fix = f"Move it where the object is made: {field} = {field}.to({case.device_named})"
    if case.device_in_maker is None:
        fix = f"Move it where it is used: {case.moved(case.name)}"
    elif case.factory is not None:
        fix = f"Make it on the device: {case.with_device(case.factory, case.device_in_maker)}"
    if len(case.links) > position + 1 and not tree.is_tensor(case.path.owners[-1]):
        fix = f"Move what it holds: {case.path_text} = {case.path_text}.to({case.device_named})"
    return Advice(
        f"{case.path_text} is held by {what}, which is no module: no .to reaches it, and it was made on {case.device}{made}.",
        fix,
    )


CAUSE = Cause(
    "plain-object",
    56,
    recognise,
    (
        Example(
            """
                class Scaler:
                    def __init__(self):
                        self.mean = torch.ones(3)
                    def __call__(self, x):
                        return x - self.mean
                Scaler()(torch.ones(3, device=DEVICE))
            """,
            "self.mean",
            "self.mean = ",
        ),
        Example(
            """
                prior = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
                print(prior.log_prob(torch.ones(3, device=DEVICE)))
            """,
            "prior.loc",
            "prior = ",
        ),
    ),
)
