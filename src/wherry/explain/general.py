"""What a device error means, where its text is all there is: which argument it speaks of, and what to print.

`answer(message, line)` gives the two sentences of a diagnosis, why and fix, in general. It knows what PyTorch's ops call
their arguments, and whose part those are in the layers and losses that people write.

Source: aten/src/ATen/native/native_functions.yaml, for the names; torch/nn/functional.py, for who passes what.
"""

from __future__ import annotations

import ast

from wherry import backends
from wherry.explain.message import Complaint, Message
from wherry.ops import instead

_MEANS = {
    ("addmm", "mat1"): "the input of a linear layer",
    ("addmm", "mat2"): "the weight of a linear layer",
    ("addmm", "bias"): "the bias of a linear layer",
    ("mm", "mat2"): "the right side of a matrix product, in a linear layer its weight",
    ("bmm", "mat2"): "the right side of a batched matrix product",
    ("index_select", "index"): "the positions to select, in an embedding its ids",
    ("embedding", "index"): "the ids that are looked up in an embedding",
    ("index_select", "self"): "what is selected from, in an embedding its weight",
    ("gather", "index"): "the positions to gather from",
    ("nll_loss_forward", "target"): "the labels given to a loss",
    ("nll_loss2d_forward", "target"): "the labels given to a loss",
    ("nll_loss_forward", "weight"): "the class weights of a loss",
    ("nll_loss2d_forward", "weight"): "the class weights of a loss",
    ("binary_cross_entropy", "target"): "the labels given to a loss",
    ("mse_loss", "target"): "the targets given to a loss",
    ("cat", "tensors"): "one of the tensors in the list",
    ("native_layer_norm", "weight"): "the weight of a LayerNorm",
    ("cudnn_batch_norm", "weight"): "the weight of a BatchNorm",
    ("cudnn_batch_norm", "running_mean"): "a buffer of a BatchNorm",
    ("native_batch_norm", "weight"): "the weight of a BatchNorm",
}
_ARGUMENTS = {
    "weight": "the weight of the layer",
    "bias": "the bias of the layer",
    "hidden": "the state that is given to a recurrent layer",
    "parameter": "the weights of a recurrent layer",
    "target": "what the prediction is compared with, often the labels",
    "index": "the positions",
    "tensors": "one of the tensors in the list",
}


def answer(read: Message, line: str = "") -> tuple[str, str]:
    """Why, and what to do, in general.

    Args:
        read: What the error says.
        line: The line that failed, or "" where that is not known either.
    """
    if read.complaint in (Complaint.MISMATCH, Complaint.GRADIENT):
        return _mismatch(read, line)
    why, fix = _OTHERS[read.complaint]
    device = read.found or read.others or next(iter(read.devices), None) or "a device"
    words = {
        "device": device,
        "op": read.op or "An operator",
        "dtype": read.dtype or "dtype",
        "argument": read.argument or "x",
    }
    if read.complaint is Complaint.KERNEL:
        written = (instead.in_words_of(node, operator=read.op) for node in _calls(line)) if read.op else ()
        found = next((one for one in written if one is not None and not one[0].through_cpu), None)
        if found is not None:
            fix = f"Write {found[1]}. {found[0].note}".rstrip()
        variables = {
            b.kernels.variable for b in backends.all() if b.device_type == device.lower() and b.kernels is not None
        } - {None}
        fix += "".join(f" Or set {variable}=1 before torch is imported." for variable in variables)
    return why.format(**words), fix.format(**words)


def told(read: Message, line: str) -> str | None:
    """What the line passes for the argument that the error names, where that argument is the one on the CPU.

    Only for calls that leave no choice: the second argument of a loss is its target, that of a matrix product its mat2.
    """
    if read.found != "cpu" or read.argument is None or read.others in (None, "cpu") or _is_pair_of_types(read):
        return None
    found = [one for node in _calls(line) if (one := _passed(node, read.argument)) is not None]
    names = list(
        dict.fromkeys(ast.unparse(one) for one in found if isinstance(one, ast.Name | ast.Attribute | ast.Subscript))
    )
    return names[0] if len(names) == 1 and len(found) == 1 else None


def _passed(node: ast.Call | ast.BinOp, argument: str) -> ast.expr | None:
    if isinstance(node, ast.BinOp):
        return {"mat1": node.left, "mat2": node.right}.get(argument) if isinstance(node.op, ast.MatMult) else None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    own = ast.unparse(node.func).split(".")[0] not in _NAMESPACES
    named = next((keyword.value for keyword in node.keywords if keyword.arg == argument), None)
    if named is not None or any(isinstance(one, ast.Starred) for one in node.args):
        return named
    count = len(node.args)
    if argument == "target" and count >= 2 and ("loss" in name or "entropy" in name or "criterion" in name):
        return node.args[1]
    if argument in ("mat1", "index", "input") and own and count == 1 and not node.keywords and name not in _METHODS:
        return node.args[0]  # a layer
    if argument == "index" and name in (
        "index_select",
        "gather",
        "take_along_dim",
        "index_add",
        "index_add_",
        "scatter_",
    ):
        return node.args[1 if own else 2] if count > (1 if own else 2) else None
    if argument == "mask" and name in ("masked_fill", "masked_fill_", "masked_select") and count >= 1:
        return node.args[0 if own else 1] if count > (0 if own else 1) else None
    if argument in ("hidden", "hx") and own and count == 2:
        return node.args[1]
    if argument in ("mat1", "mat2") and name in ("mm", "bmm", "matmul") and count == 2 and not own:
        return node.args[0 if argument == "mat1" else 1]
    return None


def _is_pair_of_types(read: Message) -> bool:
    """As in "Input type (...) and weight type (...)": there the device that is found is that of the input."""
    return read.argument in ("weight", "bias") and read.op is None and ":" not in (read.found or ":")


def _mismatch(read: Message, line: str) -> tuple[str, str]:
    devices = " and ".join(read.devices)
    argument = read.argument
    meaning = _MEANS.get((read.op or "", argument or "")) or _ARGUMENTS.get(argument or "")
    if _is_pair_of_types(read):
        why = f"The input of a layer is on {read.found}, and its {argument} is on {read.others}."
    elif argument is not None and read.found is not None:
        what = f"The argument {argument}" + (f", {meaning}," if meaning else "")
        others = f", and the rest is on {read.others}" if read.others and read.others != read.found else ""
        why = f"{what} is on {read.found}{others}."
        if argument in ("mat1", "input") and read.found != "cpu" and read.others == "cpu":
            why += " So what was not moved is the layer itself: its weights are on cpu."
    elif argument is not None and devices:
        what = f"The argument {argument}" + (f", {meaning}," if meaning else "")
        why = f"{what} is on another device than the rest: {devices} are brought together."
    elif len(read.devices) > 1:
        why = f"{devices} are brought together in one operation, and every operation needs its operands on one device."
    else:
        why = "A tensor on the CPU is brought together with one on the device."
    name = told(read, line)
    if name is not None:
        return f"{why} In this line, that is {name}.", f"Move it: {name}.to(...), to where the rest is."
    names, modules = _names(line), _modules(line)
    if len(names) + len(modules) > 1:
        why += f" Which of {_listed([*names, *modules])} it is, cannot be told from the line alone."
    prints = [f"{name}.device" for name in names[:4]]
    prints += [f"next({module}.parameters()).device" for module in modules[:2]]
    if not prints:
        prints = ["x.device of what the line uses", "next(module.parameters()).device of each module in it"]
        return why, f"Print {_listed(prints)}; then move the one that differs."
    return why, f"Before this line, print({', '.join(prints)}); then move the one that differs with .to(...)."


def _parse(line: str) -> ast.AST | None:
    text = line.strip().rstrip("\\").strip()
    for shape in ("{}", "{} pass", "{})", "{}))", "{}]", "({}"):
        try:
            return ast.parse(shape.format(text.removeprefix("return ").removeprefix("yield ")))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _calls(line: str) -> list[ast.Call | ast.BinOp]:
    tree = _parse(line)
    return [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.BinOp)]


def _names(line: str) -> list[str]:
    """What a line uses that may be a tensor, as it is written."""
    tree = _parse(line)
    if tree is None:
        return []
    found: list[str] = []

    def look(node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            look(node.value)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                if node.func.attr in _ABOUT:
                    return
                look(node.func.value)
            for argument in (*node.args, *(keyword.value for keyword in node.keywords if keyword.arg in _OPERANDS)):
                look(argument)
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Store):
            text = ast.unparse(node)
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
                look(node.value)
            elif isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
                look(node.value)
                look(node.slice)
            elif text.split(".")[0] not in _NAMESPACES and len(text) <= 40 and text.rpartition(".")[2] not in _ABOUT:
                found.append(text)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id not in (*_NAMESPACES, "self", "device"):
                found.append(node.id)
        else:
            for child in ast.iter_child_nodes(node):
                look(child)

    look(tree)
    called = _modules(line)
    return [name for name in dict.fromkeys(found) if name not in called][:6]


def _modules(line: str) -> list[str]:
    """What a line calls that may be a module: `self.fc(x)`."""
    texts = [ast.unparse(node.func) for node in _calls(line) if isinstance(node, ast.Call)]
    own = [text for text in texts if text.startswith("self.") and text.count(".") == 1]
    return list(dict.fromkeys(own or [text for text in texts if text in _LIKELY_MODULES]))


_NAMESPACES = ("torch", "F", "nn", "np", "numpy", "math")
_LIKELY_MODULES = ("model", "net", "criterion", "loss_fn", "encoder", "decoder", "generator", "discriminator")
_ABOUT = ("device", "shape", "dtype", "size", "dim", "numel", "ndim", "index", "type")
_OPERANDS = ("input", "target", "weight", "mask", "other", "attn_mask", "hx", "index", "src", "bias", "tensors", "out")
_METHODS = (
    "sub",
    "add",
    "mul",
    "div",
    "matmul",
    "mm",
    "bmm",
    "dot",
    "to",
    "append",
    "extend",
    "step",
    "max",
    "min",
    "view",
)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_OTHERS = {
    Complaint.NUMPY: (
        "A tensor on {device} was handed to NumPy, which only knows host memory.",
        "Bring it back first: x.detach().cpu().numpy(); for a list of tensors, torch.stack(list).cpu().numpy().",
    ),
    Complaint.HOST_ONLY: (
        "The argument {argument} must be on the CPU, and it is on {device}: it was moved along with the rest.",
        "Leave it where it was, or bring it back: {argument}.cpu().",
    ),
    Complaint.GENERATOR: (
        "The generator is of another device than what is to be drawn: it is on {device}.",
        "Make one for that device: torch.Generator(device=device). Or draw on the generator's device, and move the result.",
    ),
    Complaint.PINNING: (
        "What is to be pinned is on {device} already: only host memory can be pinned.",
        "Leave pin_memory out, or let the data set hand out CPU tensors.",
    ),
    Complaint.DTYPE: (
        "{device} has no {dtype}. NumPy and pandas compute in float64 unless told otherwise, and torch keeps what it is given.",
        "Convert before moving: x.float(), or array.astype(np.float32), or dtype=torch.float32 where it is made.",
    ),
    Complaint.ABSENT: (
        "The program asks for {device} by name, and this machine, or this build of torch, has none.",
        "Choose the device once: device = wherry.pick(). For a build without CUDA, see `wherry devices`.",
    ),
    Complaint.ORDINAL: (
        "A device index is asked for that does not exist here: fewer devices are visible than the program counts on.",
        "Count from 0 to torch.accelerator.device_count() - 1; CUDA_VISIBLE_DEVICES hides devices and counts anew.",
    ),
    Complaint.CHECKPOINT: (
        "The checkpoint was saved on {device}, and torch.load puts tensors back where they were; there is none here.",
        "Say where they go: torch.load(path, map_location=device).",
    ),
    Complaint.SIZES: (
        "On {device}, adaptive pooling takes only sizes of which one is a multiple of the other.",
        "Choose such sizes, or compute it on the CPU, x.cpu(), and move the result back.",
    ),
    Complaint.KERNEL: (
        "{op} is not implemented for {device}.",
        "Compute it on the CPU, x.cpu(), and move the result back.",
    ),
}
