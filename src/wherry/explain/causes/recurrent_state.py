"""recurrent-state: the state a recurrent layer begins with is not where the layer is.

Why      A state made with `torch.zeros(layers, batch, hidden)` is on the CPU, whatever the model is on; and one that is kept
         from an earlier run is where that run was.
Fix      Make it on the device of the input, `torch.zeros(..., device=x.device)`; or pass none, then the layer makes zeros itself.
Source   PyTorch documentation, "torch.nn.LSTM"; torch/nn/modules/rnn.py.
"""

from __future__ import annotations

from wherry import tree
from wherry.explain.case import Case
from wherry.explain.causes._cause import Advice, Cause, Example


def recognise(case: Case) -> Advice | None:
    if case.scene.message.argument not in ("hidden", "hx", "cx") and not _inside_recurrent(case):
        return None
    if case.scene.message.argument == "parameter" or case.stray.argument in ("input", "weight", "params"):
        return None
    if case.plain_attribute is not None and case.made_at_start:
        return None
    why = f"{case.name} is a state that begins on {case.device}"
    if case.origin is not None:
        why = f"{case.name} is a state made on {case.device} in {case.maker_name}() ({case.where(case.origin.site)})"
    if case.factory is None:
        return Advice(
            f"{why}, while the layer and its input are on {case.expected}.",
            f"Move it to the input: {case.moved(case.name)}, or pass no state to begin with zeros.",
        )
    device = _device_in_maker(case)
    return Advice(
        f"{why} without device=, while the layer and its input are on {case.expected}.",
        f"Make it where the model is: {case.with_device(case.factory, device)}",
    )


def _inside_recurrent(case: Case) -> bool:
    for frame in case.scene.inner:
        holder = frame.names.get("self", tree.MISSING)
        if holder is not tree.MISSING and any(
            cls.__module__ == "torch.nn.modules.rnn" and cls.__name__ in ("RNNBase", "RNNCellBase")
            for cls in tree.mro(holder)
        ):
            return case.stray.facts is None or not case.stray.facts.is_parameter
    return False


def _device_in_maker(case: Case) -> str:
    """How the function that makes the state can know the device: from a parameter of its module, or from an argument."""
    maker = case.maker
    arguments = [a.arg for a in maker.args.args] if maker is not None else []
    if arguments[:1] == ["self"]:
        return "next(self.parameters()).device"
    if case.origin is not None and case.origin.source.function_of(case.making) is case.scene.here.function:
        return case.device_beside
    return case.device_variable or case.device_text


CAUSE = Cause(
    "recurrent-state",
    44,
    recognise,
    (
        Example(
            """
                rnn = torch.nn.GRU(3, 4).to(DEVICE)
                x = torch.ones(2, 1, 3, device=DEVICE)
                h0 = torch.zeros(1, 1, 4)
                rnn(x, h0)
            """,
            "h0",
            "h0 = ",
        ),
    ),
)
